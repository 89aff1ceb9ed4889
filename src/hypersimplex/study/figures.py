"""The report's figures as SVG text, each with a text alternative, drawn in the colours of the page around them."""

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hypersimplex.study.console import batch_text
from hypersimplex.study.measures import MEASURES
from hypersimplex.study.stats import Cell
from hypersimplex.study.store import Run

# Axes and text are drawn in this colour and handed to the page as currentColor, so that dark pages get light axes.
INK = "#010203"
STYLES: dict[str, tuple[str, str]] = {
    "cross-entropy": ("#888888", "o"),
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
    opening = re.match(r"<svg[^>]*>", text)
    assert opening is not None
    box = re.search(r'viewBox="[^"]*"', opening.group())
    assert box is not None
    head = '<svg class="figure" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head += f" {box.group()}"
    head += f' role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
    head += f'<desc id="{name}-desc">{escape(description)}</desc>'
    return Markup(head + text[opening.end() :])


def _legend(axes: Any) -> None:
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
    """Accuracy (or AUC) against batch size, mean and 95 % interval over the seeds: the paper's figure."""
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
        _legend(axes)

    unit = " %" if measure.percent else ""
    points = "; ".join(f"{_at(c)}: {measure.text(c.summary.mean)}{unit}" for c in cells)
    against = " against batch size" if any(batches) else ""
    return svg(name, f"{dataset}: {measure.title}{against}", f"Mean over seeds. {points}.", draw)


def _half(low: float, high: float) -> float:
    return 0.0 if math.isnan(high) else (high - low) / 2


def difference_figure(name: str, dataset: str, cells: Sequence[Cell]) -> Markup:
    """Difference to the baseline with its 95 % interval; filled where it holds after Holm's correction."""
    rows = [c for c in cells if c.against is not None]
    batches = sorted({c.batch_size for c in cells})
    measure, baseline = MEASURES[cells[0].measure], cells[0].baseline
    losses = [s for s in STYLES if any(c.loss == s for c in rows)]

    def draw(axes: Any) -> None:
        axes.axhline(0, color=INK, linewidth=1)
        for number, loss in enumerate(losses):
            mine = [r for r in rows if r.loss == loss]
            step = 1.06 ** (number - (len(losses) - 1) / 2)
            _differences(axes, [(_place(c.batch_size) * step, c) for c in mine])
        _batch_axis(axes, batches)
        axes.set_ylabel(f"difference to {baseline}, {measure.unit}")
        _widen(axes, rows)
        _legend(axes)

    return svg(name, f"{dataset}: difference to {baseline}", _differences_in_words(rows, _at), draw)


def overview_figure(name: str, cells: Sequence[Cell]) -> Markup:
    """Difference to the baseline on every data set with boosted trees, in one picture."""
    measure, baseline = MEASURES[cells[0].measure], cells[0].baseline
    rows = [c for c in cells if c.against is not None]
    datasets = list(dict.fromkeys(c.dataset for c in cells))
    losses = [s for s in STYLES if any(c.loss == s for c in rows)]

    def draw(axes: Any) -> None:
        axes.axhline(0, color=INK, linewidth=1)
        for number, loss in enumerate(losses):
            shift = 0.16 * (number - (len(losses) - 1) / 2)
            _differences(axes, [(datasets.index(c.dataset) + shift, c) for c in rows if c.loss == loss])
        axes.set_xticks(range(len(datasets)), datasets, rotation=20, ha="right", fontsize=8)
        axes.set_ylabel(f"difference to {baseline}, {measure.unit}")
        _widen(axes, rows)
        _legend(axes)

    words = _differences_in_words(rows, lambda c: f"{c.loss} on {c.dataset}")
    return svg(name, f"{measure.title}: difference to {baseline} on every data set", words, draw)


def _widen(axes: Any, rows: Sequence[Cell]) -> None:
    """Where differences have very different sizes, make the axis linear around zero and logarithmic beyond."""
    sizes = sorted(abs(c.against.difference) for c in rows if c.against is not None)
    if not sizes or sizes[-1] < 8 * sizes[len(sizes) // 3]:
        return
    measure = MEASURES[rows[0].measure]
    linear = 1.0 if measure.percent else 0.003
    low, high = axes.get_ylim()
    axes.set_yscale("symlog", linthresh=linear, linscale=0.7)
    axes.set_ylim(low, high)
    steps = [linear * m for m in (1, 2, 5, 10, 20, 50, 100, 200)]
    ticks = [t for t in (*(-s for s in reversed(steps)), 0.0, *steps) if low <= t <= high]
    axes.set_yticks(ticks, [f"{t:+g}" if t else "0" for t in ticks], minor=False)
    axes.minorticks_off()


def _differences(axes: Any, placed: Sequence[tuple[float, Cell]]) -> None:
    for i, (x, c) in enumerate(placed):
        assert c.against is not None
        (color, marker), scale = STYLES[c.loss], MEASURES[c.measure].scale
        axes.errorbar(
            [x],
            [scale * c.against.difference],
            [scale * _half(c.against.low, c.against.high)],
            color=color,
            marker=marker,
            markersize=6,
            markerfacecolor=color if c.holm_p < 0.05 else "none",
            capsize=2.5,
            linewidth=1.4,
            label=c.loss if i == 0 else None,
        )


def _differences_in_words(rows: Sequence[Cell], which: Callable[[Cell], str]) -> str:
    points = []
    for c in rows:
        assert c.against is not None
        unit = " points" if MEASURES[c.measure].percent else ""
        points.append(f"{which(c)}: {MEASURES[c.measure].with_sign(c.against.difference)}{unit}, Holm p {c.holm_p:.3f}")
    return f"Filled markers: Holm p below 0.05. {'; '.join(points)}."


def curves_figure(name: str, dataset: str, batch: int, groups: dict[str, list[Run]]) -> Markup:
    """Learning curves on the test set: mean over the seeds, band of one standard deviation."""

    def curves(runs: list[Run]) -> np.ndarray[Any, np.dtype[np.float64]]:
        length = min(len(r.epochs) for r in runs)
        tests = [[t if t is not None else math.nan for _, t in r.scores()][:length] for r in runs]
        return measure.scale * np.array(tests)

    measure = MEASURES[next(runs[0].measure for runs in groups.values() if runs)]
    at = f" at batch size {batch}" if batch else ""

    drawn = {loss: curves(groups[loss]) for loss in STYLES if groups.get(loss)}

    def draw(axes: Any) -> None:
        for loss, values in drawn.items():
            color, _ = STYLES[loss]
            epochs = np.arange(1, values.shape[1] + 1)
            mean, sd = values.mean(0), values.std(0)
            axes.plot(epochs, mean, color=color, linewidth=1.5, label=loss)
            axes.fill_between(epochs, mean - sd, mean + sd, color=color, alpha=0.18, linewidth=0)
        axes.set_title(f"batch size {batch}" if batch else dataset, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("epoch" if batch else "epoch of ten rounds")
        axes.set_ylabel(measure.axis)
        _legend(axes)

    unit = " %" if measure.percent else ""
    last = {loss: measure.text(float(v.mean(0)[-1]) / measure.scale) for loss, v in drawn.items() if v.size}
    ends = "; ".join(f"{loss} ends at {value}{unit}" for loss, value in last.items())
    return svg(name, f"{dataset}: learning curves{at}", f"Mean over seeds. {ends}.", draw)


def sparkline(values: Sequence[float | None], label: str, measure: str) -> Markup:
    """A learning curve the size of a line of text."""
    numbers = [v for v in values if v is not None]
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
