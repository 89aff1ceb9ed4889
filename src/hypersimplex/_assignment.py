"""The biases of soft_assignment, found by projected Newton steps on one number per column.

For given biases b the rows are projections of x - b. The sums of the columns are the gradient of a convex function of
b, and the search looks for its minimum over b >= 0. Let M mark the entries inside (0, 1), and let r be their number in
each row. The second derivative is (diag(column sums of M) - M' diag(1/r) M)/tau. This is the Laplacian of a graph of
columns: two columns are linked by the rows that have both inside.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hypersimplex import _checks, _kernel

Array = NDArray[np.float64]

_DIRECT_STEPS = 15
_LARGEST_STRIDE, _SAMPLE = 16, 32  # of a first sample of the rows; the choices it holds for each column
_SAMPLE_TOLERANCE = 0.1
_PATIENT_STEPS = 150
_CIRCLING = 3  # steps in a row that do not halve the error
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
    search = _Search(rows, capacity, start)  # which complains of bad rows before the columns are judged
    room = float(np.minimum(capacity, usable).sum())
    if room < wanted * (1 - _ROUNDING):
        raise _checks.too_little_capacity(wanted, float(capacity.sum()), room)
    search.widest = 2 * (spread + rows.tau)
    if not search.run(_DIRECT_STEPS, patient=False):
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
    near = search.run(_DIRECT_STEPS, patient=False) or search.error < 0.5
    return search.bias if near else nothing


def _by_cooling(search: "_Search", spread: float) -> None:
    """Few rows at a small tau are a puzzle, at a large one an average: solve that first, and cool down from there."""
    rows, tau = search.rows, search.rows.tau
    warm, bias, factor = max(spread, tau), np.zeros_like(search.bias), 0.25
    rows.tau = warm
    while factor < 0.9:
        search.go(bias)
        if search.run(_PATIENT_STEPS, patient=True):
            if rows.tau <= tau:
                return
            warm, bias = rows.tau, search.bias
        else:
            factor = factor**0.5
        rows.tau = max(tau, warm * factor)
    rows.tau = tau
    search.go(search.bias)
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

    def run(self, most: int, patient: bool) -> bool:
        best, stuck = np.inf, 0
        for _ in range(most):
            stuck = 0 if self.error < best / 2 else stuck + 1
            best = min(best, self.error)
            if self.error <= self.rows.tolerance or (stuck > 5 and self.error <= _ROUNDED * self.rows.tolerance):
                return True
            if stuck > _CIRCLING and stuck % 2:
                move = _worst_part(self.rows, self.excess, self.bias)
            else:
                widening = 2 if patient else 8
                move = _newton_move(self.rows, self.excess, self.bias, self.capacity, self.widest, widening)
            self._walk(move, patient)
            self.steps += 1
        return self.error <= self.rows.tolerance

    def go(self, bias: Array) -> None:
        self.bias, self.excess = bias, self.rows.place(bias) - self.capacity
        self.passes += 1
        missed = np.where(bias > 0, np.abs(self.excess), np.maximum(self.excess, 0))
        self.error = float(np.max(missed / np.maximum(self.capacity, 1), initial=0.0))

    def _walk(self, move: Array, patient: bool) -> None:
        """Walk less far while the slope there is steep the other way; with patience, to where it is nearly level."""
        bias, excess = self.bias, self.excess
        near, far, length = 0.0, np.inf, 1.0
        for _ in range(_MOST_TRIALS):
            there = np.maximum(bias + length * move, 0)
            path = there - bias
            self.go(there - there.min(initial=np.inf))  # a number added to all biases changes no row
            before, after = float(excess @ path), float(self.excess @ path)
            if not before > 0 or (after >= -0.5 * before and not patient) or abs(after) <= 0.1 * before:
                return
            if after > 0:
                near = length
            else:
                far = length
            if far == np.inf:
                length *= 3
            elif far - near <= 1e-2 * far:
                return
            else:
                aim = length * before / (before - after) if after < before else far
                length = min(max(aim, near + 0.1 * (far - near)), far - 0.3 * (far - near))


def _newton_move(rows: Rows, excess: Array, bias: Array, capacity: Array, widest: float, widening: float) -> Array:
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
        window = min(widest, wanted if complete else widening * window)
        links = rows.pairs(window) / window
        if not complete:
            links = near + np.where(np.not_equal.outer(*[components(near)] * 2), links, 0)


def _worst_part(rows: Rows, excess: Array, bias: Array) -> Array:
    """A move of one part of the graph as a whole: of its links to others, which begin somewhere, no model tells."""
    parts = components(rows.pairs(rows.tau))
    total = np.bincount(parts, excess, len(bias))
    held = np.bincount(parts, bias <= 0, len(bias)) > 0
    total[held & (total < 0)] = 0
    worst = int(np.argmax(np.abs(total)))
    return np.where(parts == worst, np.sign(total[worst]) * rows.tau, 0.0)


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
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _checks.not_a_number("capacity", value) from None
    if array.shape not in ((), (1,), (experts,)):
        raise _checks.wrong_shape("capacity", (experts,), array.shape)
    if not (array >= 0).all():
        raise ValueError(f"capacity must be at least 0, got {float(array[~(array >= 0)].flat[0])}")
    return np.full(experts, np.minimum(array, 1e300))  # no limit is a limit too
