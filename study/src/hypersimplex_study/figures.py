"""The report's figures as SVG text, each with a text alternative, drawn in the colors of the page around them."""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hypersimplex_study.console import batch_text
from hypersimplex_study.measures import MEASURES, Measure
from hypersimplex_study.records import Run
from hypersimplex_study.speed import curve
from hypersimplex_study.stats import LEAST_SEEDS, Cell, summarize

Numbers = np.ndarray[Any, np.dtype[np.float64]]
# Axes and text are drawn in this color and handed to the page as currentColor, so that dark pages get light axes.
INK = "#010203"
STYLES: dict[str, tuple[str, str]] = {
    "cross-entropy": ("#888888", "o"),
    "label-smoothing": ("#7a5195", "<"),
    "squentropy": ("#b8a200", ">"),
    "cross-entropy-warmup": ("#444444", "^"),
    "hinge": ("#cc79a7", "v"),
    "mse": ("#009e73", "s"),
    "hypersimplex": ("#d55e00", "D"),
    "hypersimplex-argmax": ("#e69f00", "d"),
    "hypersimplex-half": ("#2b83ba", "P"),
    "hypersimplex-half-argmax": ("#56b4e9", "X"),
    "binary": ("#888888", "o"),
    "squared-error": ("#009e73", "s"),
    "hypersimplex-ones": ("#2b83ba", "P"),
    "hypersimplex-paper": ("#56b4e9", "X"),
}
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    **dict.fromkeys(
        ["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"], INK
    ),
}


def svg(name: str, title: str, description: str, draw: Callable[[Any], None]) -> Markup:
    """Draw one figure; `name` keeps the ids of several figures on one page apart."""
    settings: Any = {**SETTINGS, "svg.hashsalt": name}
    with rc_context(settings):
        figure = Figure(figsize=(5.4, 3.5), layout="constrained")
        draw(figure.subplots())
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    label = f'role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
    label += f'<desc id="{name}-desc">{escape(description)}</desc>'
    opening = r'<svg[^>]*(viewBox="[^"]*")[^>]*>'
    return Markup(re.sub(opening, lambda found: f'<svg class="figure" {spaces} {found[1]} {label}', text, count=1))


def legend(axes: Any) -> None:
    """Above the plot, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper center", ncols=3, fontsize=8, columnspacing=1.2)


def _batch_axis(axes: Any, batches: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    places = [_place(b) for b in batches]
    axes.set_xticks(places, [batch_text(b) for b in batches], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("batch size" if any(batches) else "rows in a round")
    axes.set_xlim(min(places) / 1.3, max(places) * 1.3)


def _place(batch_size: int) -> int:
    return batch_size or 1


def _at(cell: Cell) -> str:
    return f"{cell.loss} at {cell.batch_size}" if cell.batch_size else cell.loss


def accuracy_figure(name: str, dataset: str, cells: Sequence[Cell]) -> Markup:
    """Accuracy (or AUC) against batch size, mean and 95 % interval over the seeds: the paper's figure; no foils."""
    cells = [c for c in cells if not c.foil]
    measure = MEASURES[cells[0].measure]
    batches = sorted({c.batch_size for c in cells})
    losses = [s for s in STYLES if any(c.loss == s for c in cells)]

    def draw(axes: Any) -> None:
        for number, loss in enumerate(losses):
            rows = sorted((c for c in cells if c.loss == loss), key=lambda c: c.batch_size)
            color, marker = STYLES[loss]
            # A little to the side of each other, so that intervals do not hide one another.
            x = [_place(c.batch_size) * 1.035 ** (number - (len(losses) - 1) / 2) for c in rows]
            y = [measure.scale * c.summary.mean for c in rows]
            half = [_half(c.summary.low, c.summary.high) * measure.scale for c in rows]
            axes.errorbar(
                x, y, half, color=color, marker=marker, markersize=4.5, linewidth=1.4, capsize=2.5, label=loss
            )
        _batch_axis(axes, batches)
        axes.set_ylabel(measure.axis)
        keep_possible(axes, measure)
        legend(axes)

    points = "; ".join(f"{_at(c)}: {measure.shown(c.summary.mean)}" for c in cells)
    against = " against batch size" if any(batches) else ""
    return svg(name, f"{dataset}: {measure.title}{against}", f"Mean over seeds. {points}.", draw)


def keep_possible(axes: Any, measure: Measure) -> None:
    """Cut the axis to scores there can be: the interval of a few seeds reaches beyond them."""
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), min(high, 1.005 * measure.scale) if measure.higher else high)


def _half(low: float, high: float) -> float:
    return 0.0 if math.isnan(high) else (high - low) / 2


def difference_figure(name: str, dataset: str, cells: Sequence[Cell]) -> Markup:
    """Difference to the baseline at every batch size; no foils."""

    def axis(axes: Any) -> None:
        _batch_axis(axes, sorted({c.batch_size for c in cells}))

    places = (lambda c, shift: _place(c.batch_size) * 1.06**shift, axis)
    return _differences(name, f"{dataset}: difference to {cells[0].baseline}", cells, _at, *places)


def overview_figure(name: str, cells: Sequence[Cell]) -> Markup:
    """Difference to the baseline on every data set with boosted trees, in one picture."""
    datasets = list(dict.fromkeys(c.dataset for c in cells))
    title = f"{MEASURES[cells[0].measure].title}: difference to {cells[0].baseline} on every data set"

    def axis(axes: Any) -> None:
        axes.set_xticks(range(len(datasets)), datasets, rotation=20, ha="right", fontsize=8)

    places = (lambda c, shift: datasets.index(c.dataset) + 0.16 * shift, axis)
    return _differences(name, title, cells, lambda c: f"{c.loss} on {c.dataset}", *places)


def _differences(
    name: str,
    title: str,
    cells: Sequence[Cell],
    which: Callable[[Cell], str],
    place: Callable[[Cell, float], float],
    axis: Callable[[Any], None],
) -> Markup:
    """Differences with their 95 % intervals; filled where they hold after Holm's correction.

    `place` says where a cell stands, given how far its loss is shifted from the middle of all, and `axis` draws the
    axis below; `which` names a cell in the text alternative.
    """
    measure, rows = MEASURES[cells[0].measure], [(c, c.against) for c in cells if c.against is not None and not c.foil]
    losses = [s for s in STYLES if any(c.loss == s for c, _ in rows)]

    def draw(axes: Any) -> None:
        axes.axhline(0, color=INK, linewidth=1)
        for number, loss in enumerate(losses):
            color, marker = STYLES[loss]
            mine = [row for row in rows if row[0].loss == loss]
            for i, (c, against) in enumerate(mine):
                axes.errorbar(
                    [place(c, number - (len(losses) - 1) / 2)],
                    [measure.scale * against.difference],
                    [measure.scale * _half(against.low, against.high)],
                    color=color,
                    marker=marker,
                    markersize=6,
                    markerfacecolor=color if c.holm_p < 0.05 else "none",
                    capsize=2.5,
                    linewidth=1.4,
                    label=None if i else loss,
                )
        axis(axes)
        axes.set_ylabel(f"difference to {cells[0].baseline}, {measure.unit}")
        legend(axes)

    unit = " points" if measure.percent else ""
    points = [f"{which(c)}: {measure.with_sign(a.difference)}{unit}, Holm p {c.holm_p:.3f}" for c, a in rows]
    return svg(name, title, f"Filled markers: Holm p below 0.05. {'; '.join(points)}.", draw)


def curves_figure(name: str, dataset: str, batch: int, groups: Mapping[str, Sequence[Run]]) -> Markup:
    """The test score against steps: mean over the seeds, band of its 95 % interval where there are enough."""
    measure = MEASURES[next(runs[0].measure for runs in groups.values() if runs)]
    counted = batch and all(e.steps is not None for runs in groups.values() for r in runs for e in r.epochs)
    drawn: dict[str, tuple[Numbers, Numbers]] = {}
    for loss in STYLES:
        found = [curve(r) for r in groups.get(loss, ())]
        if found:
            length = min(len(c.scores) for c in found)
            steps = np.array(found[0].steps[:length])
            drawn[loss] = (steps, measure.scale * np.array([c.scores[:length] for c in found]))

    def draw(axes: Any) -> None:
        for loss, (steps, values) in drawn.items():
            color, _ = STYLES[loss]
            axes.plot(steps, values.mean(0), color=color, linewidth=1.5, label=loss)
            if len(values) >= LEAST_SEEDS:
                means = [summarize(column) for column in values.T.tolist()]
                low, high = [s.low for s in means], [s.high for s in means]
                axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
        axes.set_title(f"batch size {batch}" if batch else dataset, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step" if counted else "epoch" if batch else "epoch of ten rounds")
        axes.set_ylabel(measure.axis)
        keep_possible(axes, measure)
        legend(axes)

    last = {loss: measure.shown(float(v.mean(0)[-1]) / measure.scale) for loss, (_, v) in drawn.items() if v.size}
    ends = "; ".join(f"{loss} ends at {value}" for loss, value in last.items())
    at = f" at batch size {batch}" if batch else ""
    return svg(name, f"{dataset}: {measure.title} against steps{at}", f"Mean over seeds. {ends}.", draw)


def sparkline(values: Sequence[float | None], label: str, measure: str) -> Markup:
    """A learning curve the size of a line of text."""
    numbers = [v for v in values if v is not None and not math.isnan(v)]
    if not numbers:
        return Markup("")
    low, span = min(numbers), (max(numbers) - min(numbers)) or 1.0
    step = 120 / max(1, len(numbers) - 1)
    points = " ".join(f"{i * step:.1f},{22 - 20 * (v - low) / span:.1f}" for i, v in enumerate(numbers))
    text = escape(
        f"{label}: test {MEASURES[measure].title} from {numbers[0]:.3f} to {numbers[-1]:.3f} in {len(numbers)} epochs"
    )
    return Markup(
        f'<svg class="spark" viewBox="0 0 120 24" role="img" aria-label="{text}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
