"""The report's figures as SVG text, each with a text alternative, drawn in the colors of the page around them."""

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure

from hypersimplex.study.console import batch_text
from hypersimplex.study.measures import MEASURES, Measure
from hypersimplex.study.stats import Cell

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
    opening = re.match(r"<svg[^>]*>", text)
    assert opening is not None
    box = re.search(r'viewBox="[^"]*"', opening.group())
    assert box is not None
    head = '<svg class="figure" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head += f" {box.group()}"
    head += f' role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(title)}</title>'
    head += f'<desc id="{name}-desc">{escape(description)}</desc>'
    return Markup(head + text[opening.end() :])


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
    """Difference to the baseline with its 95 % interval; filled where it holds after Holm's correction; no foils."""
    rows = [c for c in cells if c.against is not None and not c.foil]
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
        legend(axes)

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
        legend(axes)

    words = _differences_in_words(rows, lambda c: f"{c.loss} on {c.dataset}")
    return svg(name, f"{measure.title}: difference to {baseline} on every data set", words, draw)


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
