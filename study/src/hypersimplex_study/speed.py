"""Accuracy against steps: how soon a loss reaches a score, over the same seeds, and the area under its curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hypersimplex_study.measures import MEASURES
from hypersimplex_study.records import Run
from hypersimplex_study.stats import Cell, paired_bootstrap, summarize

# The scores whose steps are counted: fixed, so that no result chooses them.
LEVELS = (*(round(0.05 * i, 2) for i in range(1, 20)), 0.97, 0.98, 0.99)
SHOWN = 3  # of them, the highest that every run of the compared pair reaches, and that the pair ends with


@dataclass(frozen=True)
class Curve:
    """The test scores of one run, with the steps and the seconds of training before each."""

    steps: tuple[float, ...]
    seconds: tuple[float, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Reach:
    """One loss at one batch size: what it takes to reach a score, and how many times the baseline's steps that is."""

    dataset: str
    batch_size: int
    loss: str
    baseline: str
    measure: str
    level: float
    reached: int
    runs: int
    steps: float  # mean over the runs that reach it
    seconds: float
    ratio: float
    low: float
    high: float
    primary: bool

    @property
    def shown_level(self) -> str:
        return f"{100 * self.level:g} %" if MEASURES[self.measure].percent else f"{self.level:g}"

    @property
    def sentence(self) -> str:
        """Say what a practitioner wants to read."""
        interval = "" if math.isnan(self.low) else f" (95 % interval {self.low:.2f} to {self.high:.2f})"
        return f"reaches {self.shown_level} in {self.ratio:.2f} times the steps of {self.baseline}{interval}"


@dataclass(frozen=True)
class Area:
    """The mean score over all steps, which is the area under the curve divided by its length."""

    dataset: str
    batch_size: int
    loss: str
    mean: float
    difference: float | None
    low: float | None
    high: float | None


def curve(run: Run) -> Curve:
    """Of runs from before steps were recorded, an epoch is a step: ratios are the same."""
    known = all(e.steps is not None for e in run.epochs)
    training = [e.seconds - (e.recompute_seconds or 0.0) - (e.evaluate_seconds or 0.0) for e in run.epochs]
    return Curve(
        tuple(float(e.steps or 0) if known else e.epoch + 1.0 for e in run.epochs),
        tuple(np.cumsum(training).tolist()),
        tuple(math.nan if test is None else test for _, test in run.scores()),
    )


def reach(found: Curve, level: float) -> tuple[float, float]:
    """Return the steps and seconds at which a curve first is at a level, between evaluations by a straight line.

    NaN where it never is. At the first evaluation the crossing is not known: it is that evaluation.

    >>> reach(Curve((10, 20), (1, 2), (0.5, 0.7)), 0.6)
    (15.0, 1.5)
    """
    above = [i for i, score in enumerate(found.scores) if score >= level]
    if not above:
        return math.nan, math.nan
    i = above[0]
    if i == 0:
        return float(found.steps[0]), float(found.seconds[0])
    part = (level - found.scores[i - 1]) / (found.scores[i] - found.scores[i - 1])
    steps, seconds = (x[i - 1] + part * (x[i] - x[i - 1]) for x in (found.steps, found.seconds))
    return round(steps, 6), round(seconds, 6)


def area(found: Curve) -> float:
    """Return the mean score between the first evaluation and the last."""
    if len(found.steps) < 2:
        return found.scores[0] if found.scores else math.nan
    steps, scores = np.array(found.steps), np.array(found.scores)
    return float(((scores[1:] + scores[:-1]) / 2 * np.diff(steps)).sum() / (steps[-1] - steps[0]))


def ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Return the geometric mean of a over b, and its 95 % interval by the paired bootstrap."""
    low, high = paired_bootstrap(np.log(a).tolist(), np.log(b).tolist())
    return math.exp(float(np.mean(np.log(a) - np.log(b)))), math.exp(low), math.exp(high)


def curves_of(cell: Cell, runs: Mapping[str, Run]) -> dict[int, Curve]:
    """The curves of the finished runs of a cell, by seed."""
    found = {s: runs[k] for s, k in zip(cell.seeds, cell.keys, strict=True)}
    return {s: curve(r) for s, r in found.items() if r.state == "done" and r.epochs}


def levels(pair: Sequence[Mapping[int, Curve]], end: float = math.inf) -> list[float]:
    """The highest levels that every run of both losses reaches, none of them at its first evaluation already.

    None is above `end`, the score that is compared: what a curve only passes on its way, nobody gets.
    """
    every = [c for curves in pair for c in curves.values()]
    usable = [v for v in LEVELS if v <= end and all(c.scores[0] < v <= max(c.scores) for c in every)]
    return usable[-SHOWN:]


def compare(cells: Sequence[Cell], runs: Mapping[str, Run]) -> tuple[list[Reach], list[Area]]:
    """For every data set and batch size of networks: steps to the levels of its compared pair, and areas."""
    reached: list[Reach] = []
    areas: list[Area] = []
    measured = [c for c in cells if c.batch_size and MEASURES[c.measure].higher and not c.foil]
    for place in dict.fromkeys((c.dataset, c.batch_size) for c in measured):
        here = [c for c in measured if (c.dataset, c.batch_size) == place]
        curves = {c.loss: curves_of(c, runs) for c in here}
        base = curves.get(here[0].baseline, {})
        both = [c for c in here if c.primary or c.loss == c.baseline]
        pair = [curves[c.loss] for c in both]
        shown = levels(pair, min(c.summary.mean for c in both)) if len(pair) == 2 and all(pair) else []
        for c in here:
            if curves[c.loss]:
                areas.append(_area(c, curves[c.loss], base))
            reached += [_reach(c, curves[c.loss], base, level) for level in shown]
    return reached, areas


def _area(cell: Cell, mine: Mapping[int, Curve], base: Mapping[int, Curve]) -> Area:
    values = {s: area(c) for s, c in mine.items()}
    shared = [s for s in values if s in base] if cell.against is not None else []
    against: tuple[float | None, float | None, float | None] = (None, None, None)
    if shared:
        theirs = [area(base[s]) for s in shared]
        difference = summarize([values[s] - b for s, b in zip(shared, theirs, strict=True)]).mean
        against = (difference, *paired_bootstrap([values[s] for s in shared], theirs))
    return Area(cell.dataset, cell.batch_size, cell.loss, summarize(list(values.values())).mean, *against)


def _reach(cell: Cell, mine: Mapping[int, Curve], base: Mapping[int, Curve], level: float) -> Reach:
    found = {s: reach(c, level) for s, c in mine.items()}
    there = {s: v for s, v in found.items() if not math.isnan(v[0])}
    compared: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    # A mean over the runs that reach a level would flatter a loss that often does not.
    shared = [s for s in there if s in base]
    if cell.against is not None and shared and len(there) == len(mine):
        compared = ratio([there[s][0] for s in shared], [reach(base[s], level)[0] for s in shared])
    steps, seconds = (float(np.mean([v[i] for v in there.values()])) if there else math.nan for i in (0, 1))
    counts = (len(there), len(mine), steps, seconds)
    place = (cell.dataset, cell.batch_size, cell.loss, cell.baseline, cell.measure)
    return Reach(*place, level, *counts, *compared, cell.primary)


def headline(reached: Sequence[Reach], cell: Cell) -> Reach | None:
    """The highest level of a cell that has a ratio."""
    mine = [r for r in reached if (r.dataset, r.batch_size, r.loss) == (cell.dataset, cell.batch_size, cell.loss)]
    return next((r for r in reversed(mine) if not math.isnan(r.ratio)), None)
