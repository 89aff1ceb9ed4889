"""Learning curves as SVG: the score against steps, and one the size of a line of text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

from hypersimplex.study.figures import STYLES, keep_possible, legend, svg
from hypersimplex.study.measures import MEASURES
from hypersimplex.study.records import Run
from hypersimplex.study.speed import curve
from hypersimplex.study.stats import LEAST_SEEDS, summarize

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def band(values: Numbers) -> tuple[Numbers, Numbers]:
    """The 95 % interval of the mean of every column."""
    found = [summarize(column.tolist()) for column in values.T]
    return np.array([s.low for s in found]), np.array([s.high for s in found])


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
                axes.fill_between(steps, *band(values), color=color, alpha=0.18, linewidth=0)
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
