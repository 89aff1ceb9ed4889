"""The biases of soft_assignment, found by projected Newton steps on one number per column.

For given biases b the rows are projections of x - b. The sums of the columns are the gradient of a convex function of
b, and the search looks for its minimum over b >= 0. Let M mark the entries inside (0, 1), and let r be their number in
each row. The second derivative is (diag(column sums of M) - M' diag(1/r) M)/tau. This is the Laplacian of a graph of
columns: two columns are linked by the rows that have both inside.

Where that search does not end, a second one solves for large temperatures first, each time with a penalty on the way
from the last solution that links every column to a fixed one.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hypersimplex import _checks, _kernel
from hypersimplex._numpy import as_numbers

Array = NDArray[np.float64]

_DIRECT_STEPS = 15
_LARGEST_STRIDE, _SAMPLE = 16, 32  # of a first sample of the rows; the choices it holds for each column
_SAMPLE_TOLERANCE = 0.1
_COOLING, _WARM_TOLERANCE = 0.25, 0.1
_FREEDOM, _MORE_FREEDOM = 10.0, 20.0  # the first in units of tau
_MOST_CENTERS, _MOST_STEPS = 14, 40  # penalties at one temperature, steps under one of them
_WIDENING = 8.0  # of a window that does not link all columns
_REACH, _WIDE_ENOUGH = 1.75, 1.05  # of a window: how many standard deviations of the step it holds, and about so wide
_MOST_TRIALS = 40  # shortenings of one step
_ROUNDING = 1e-7  # of capacities that are meant to sum to the demand
_ROUNDED = 200  # times the tolerance: what a search may leave that is stuck in its own rounding


class Rows(Protocol):
    """All rows, of all ranks, at the biases of the last call of `place`."""

    tau: float
    tolerance: float  # that the dtype of the rows can reach, relative to a capacity

    def place(self, bias: Array) -> Array:
        """Project the rows of x - bias; return the sums of the columns."""

    def pairs(self, window: float) -> Array:
        """For each pair of columns the sum of 1/r over the rows that have both inside, 0 on the diagonal.

        Inside are the entries between 0 and 1, or with window > tau those of a window so much wider around them.
        """

    def sample(self, stride: int) -> "Rows":
        """Every row whose number is a multiple of stride."""

    def levels(self, share: float) -> Array:
        """For each column about the score that this share of the rows is above; 0 where it is infinite."""

    def widen(self) -> None:
        """Compute in double precision from now on: x - bias may have too few digits for tau."""

    def demand(self) -> tuple[float, Array, float]:
        """The sum of k, how many rows each column may take, and the distance from the least to the largest x."""

    def forced(self, order: NDArray[np.int64]) -> Array:
        """How much the rows can place only in the first 1, 2, ... columns of the order."""


@dataclass(frozen=True, slots=True)
class Found:
    bias: Array
    steps: int
    passes: int  # projections of all rows


def find(rows: Rows, capacity: Array, start: Array) -> Found:
    wanted, usable, spread = rows.demand()
    if not start.any() and (usable > 0).all():
        start = _from_sample(rows, capacity, wanted, usable, spread)
    limits = np.minimum(capacity, 2 * wanted + 1)  # more is never full, and its square may overflow
    search = _Search(rows, limits, start)  # which complains of bad rows before the columns are judged
    room = float(np.minimum(capacity, usable).sum())
    if room < wanted * (1 - _ROUNDING):
        raise _checks.too_little_capacity(wanted, float(capacity.sum()), room)
    search.widest = 2 * (spread + rows.tau)
    if not search.run():
        _check_forced(rows, search.bias, capacity)
        rows.widen()
        _by_cooling(search, spread)
    return Found(search.bias, search.steps, search.passes)


def inverse(rows: Rows, bias: Array) -> Array:
    """Of tau times the second derivative, on the columns with a bias, where rows are placed; 0 elsewhere."""
    links = rows.pairs(rows.tau)
    out = np.empty_like(links)
    _kernel.column_inverse(links, bias, out)
    return out


def _from_sample(rows: Rows, capacity: Array, wanted: float, usable: Array, spread: float) -> Array:
    """Biases to start from: of few rows the levels that a like share is above; of many, what a part of them needs."""
    stride, nothing = min(_LARGEST_STRIDE, int(wanted / (_SAMPLE * max(len(capacity), 1)))), np.zeros_like(capacity)
    if stride < 2:
        if (rows.place(nothing) <= capacity).all():
            return nothing
        levels = rows.levels(wanted / float(usable.sum()))
        return levels - float(levels.min(initial=np.inf))
    part = rows.sample(stride)
    part.tau = max(rows.tau, spread / 32)  # a few rows say little about what lies closer
    part_wanted, count = part.demand()[:2]
    levels = part.levels(part_wanted / float(count.sum()))
    search = _Search(part, capacity * (part_wanted / wanted), levels - levels.min(initial=np.inf))
    search.widest = 2 * (spread + rows.tau)
    part.tolerance = _SAMPLE_TOLERANCE
    near = search.run() or search.error < 0.5
    return search.bias if near else nothing


def _by_cooling(search: "_Search", spread: float) -> None:
    """Few rows at a small tau are a puzzle, at a large one an average: solve that first, and cool down from there."""
    rows, tau = search.rows, search.rows.tau
    rows.tau = max(spread, tau)
    search.go(np.zeros_like(search.bias))
    while rows.tau > tau:
        search.settle(_WARM_TOLERANCE)
        rows.tau = max(tau, _COOLING * rows.tau)
        search.go(search.bias)
    search.settle(rows.tolerance)
    search.go(search.bias - search.bias.min(initial=np.inf))
    if search.error > _ROUNDED * rows.tolerance:
        _check_forced(rows, search.bias, search.capacity)
        raise RuntimeError(f"no biases found: an expert misses its capacity by {search.error:.1%}")


class _Search:
    """Where a search stands."""

    widest = np.inf  # a window that holds all entries

    def __init__(self, rows: Rows, capacity: Array, start: Array) -> None:
        self.rows, self.capacity = rows, capacity
        self.steps = self.passes = 0
        self.go(start)

    def run(self) -> bool:
        for _ in range(_DIRECT_STEPS):
            if self.error <= self.rows.tolerance:
                return True
            move = _newton_move(self.rows, self.excess, self.bias, self.capacity, self.widest)
            self._walk(move, self.bias, np.inf)
            self.steps += 1
        return self.error <= self.rows.tolerance

    def settle(self, tolerance: float) -> None:
        """Minimize with a penalty on the way from the last minimum, a weaker one each time."""
        freedom = _FREEDOM * self.rows.tau / max(1.0, float(self.capacity.mean()))
        for _ in range(_MOST_CENTERS):
            if self.error <= tolerance:
                return
            self._minimize(self.bias, freedom, tolerance)
            freedom *= _MORE_FREEDOM

    def _minimize(self, center: Array, freedom: float, tolerance: float) -> None:
        for _ in range(_MOST_STEPS):
            excess = self.excess - (self.bias - center) / freedom
            near = 0.1 * float(np.max(np.abs(self.bias - center), initial=0.0)) / freedom / self.capacity.max(initial=1)
            if self.missed(excess) <= max(near, 0.1 * tolerance):
                return
            self._walk(_penalized_move(self.rows, excess, self.bias, self.capacity, freedom), center, freedom)
            self.steps += 1

    def go(self, bias: Array) -> None:
        self.bias, self.excess = bias, self.rows.place(bias) - self.capacity
        self.passes += 1
        self.error = self.missed(self.excess)

    def missed(self, excess: Array) -> float:
        missed = np.where(self.bias > 0, np.abs(excess), np.maximum(excess, 0))
        return float(np.max(missed / np.maximum(self.capacity, 1), initial=0.0))

    def _walk(self, move: Array, center: Array, freedom: float) -> None:
        """Walk less far while the slope there is steep the other way."""
        bias, excess = self.bias, self.excess - (self.bias - center) / freedom
        length = 1.0
        for _ in range(_MOST_TRIALS):
            there = np.maximum(bias + length * move, 0)
            path = there - bias
            # A number added to all biases changes no row, and only a penalty.
            self.go(there if freedom < np.inf else there - there.min(initial=np.inf))
            before, after = float(excess @ path), float((self.excess - (there - center) / freedom) @ path)
            if not before > 0 or after >= -0.5 * before:
                return
            length *= min(max(before / (before - after), 0.1), 0.7)


def _newton_move(rows: Rows, excess: Array, bias: Array, capacity: Array, widest: float) -> Array:
    """A step longer than tau leaves the entries it was computed from: then a window as wide as both tells more.

    Where the entries inside link no column with room to those that need it, wider windows link these parts.
    """
    window = rows.tau
    links = near = rows.pairs(window) / window
    move = np.empty_like(bias)
    while True:
        complete, longest, deviation = _kernel.column_step(links, bias, excess, capacity, rows.tolerance / 4, move)
        wanted = math.hypot(rows.tau, _REACH * deviation)
        if window >= widest or (complete and wanted <= _WIDE_ENOUGH * window):
            return move * min(1.0, widest / longest) if longest else move
        window = min(widest, wanted if complete else _WIDENING * window)
        links = rows.pairs(window) / window
        if not complete:
            links = near + np.where(np.not_equal.outer(*[components(near)] * 2), links, 0)


def _penalized_move(rows: Rows, excess: Array, bias: Array, capacity: Array, freedom: float) -> Array:
    """The penalty is a link of every column to one more, which is held at 0 because it has room."""
    count = len(bias)
    links = np.full((count + 1, count + 1), 1 / freedom)
    links[:count, :count] = rows.pairs(rows.tau) / rows.tau
    links[count, count] = 0
    room = np.abs(excess).sum() + 1
    move = np.empty(count + 1)
    _kernel.column_step(
        links, np.append(bias, 0.0), np.append(excess, -room), np.append(capacity, room), rows.tolerance / 4, move
    )
    return move[:count]


def components(links: Array) -> NDArray[np.int64]:
    """The least column of the part of the graph each column is in."""
    parts = np.empty(len(links), np.int64)
    _kernel.column_parts(links, parts)
    return parts


def _check_forced(rows: Rows, bias: Array, capacity: Array) -> None:
    """The biases of experts that cannot have enough room run away from the others."""
    order = np.argsort(-bias, kind="stable")
    forced, room = rows.forced(order), np.cumsum(capacity[order])
    for last in np.flatnonzero(forced > room * (1 + _ROUNDING))[:1]:
        raise _checks.forced_experts(order[: last + 1].tolist(), float(forced[last]), float(room[last]))


def as_capacity(value: Any, experts: int) -> Array:
    """One number for each expert, out of one for all or one for each."""
    array = as_numbers("capacity", value).astype(np.float64)
    if array.shape not in ((), (1,), (experts,)):
        raise _checks.wrong_shape("capacity", (experts,), array.shape)
    if not (array >= 0).all():
        raise ValueError(f"capacity must be at least 0, got {float(array[~(array >= 0)].flat[0])}")
    return np.full(experts, np.minimum(array, 1e300))  # no limit is a limit too
