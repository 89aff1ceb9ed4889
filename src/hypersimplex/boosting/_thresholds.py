"""The thresholds of whole columns of scores, on one machine or many, which exchange five numbers per class and pass."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypersimplex import _checks
from hypersimplex._search import ACTIVE, ACTIVE_SUM, ONES, Start, is_flat, middle, search
from hypersimplex.boosting._columns import POSITIVE, SQUARE, Columns, Doubles

Reduce = Callable[[Doubles, str], Doubles]  # the numbers of all machines, combined by "sum" or "max"

SAMPLE = 1 << 16  # rows that give the first threshold of longer columns
ROUGH = 1e-3  # the mean error of a sample's projection
EXACT = 1e-10  # and of all rows': a thousandth of what float32 gradients can show
NEAR = 1e-4  # a mean error after which the next pass may be the last
FEW = 1 << 14  # rows on all machines whose labels cost less than another pass
FLAT = 1e-9  # of the active rows' weight
MOST_PASSES = 200  # bisection alone needs fewer
PATIENCE = 20  # passes for finding both bounds, by jumps that grow fourfold, before infinite scores are suspected


class Solution(NamedTuple):
    mu: Doubles
    mean: Doubles  # the mean error of the active rows
    square: Doubles  # the sum of all squared errors


class _Passes:
    """Sums of a search. Labels are read when a pass may be the last; `labeled` says of which classes they were."""

    def __init__(self, columns: Columns, k: Doubles, tau: Doubles, reduce: Reduce, always: bool = False) -> None:
        self.always = always
        self.columns, self.k, self.tau, self.reduce = columns, k, tau, reduce
        self.number, self.labeled = 0, np.zeros(columns.classes, bool)

    def __call__(self, mu: Doubles, low: Doubles, error: Doubles) -> Doubles:
        self.number += 1
        if self.number == PATIENCE:
            _check_infinite(self.columns, self.k, self.reduce)
        skip = np.isnan(mu)
        near = self.always or bool((skip | (error < NEAR)).all())
        self.labeled = np.where(skip, self.labeled, near)
        return self.columns.sums(mu, self.tau, skip, near).T

    def add_up(self, table: Doubles) -> Doubles:
        table = self.reduce(np.ascontiguousarray(table).ravel(), "sum").reshape(table.shape)
        if np.isnan(table[ACTIVE_SUM]).any():
            column = int(np.isnan(table[ACTIVE_SUM]).argmax())
            raise ValueError(f"y_pred must not be NaN, got NaN in column {column}")
        return table

    def finish(self, mu: Doubles, table: Doubles, done: NDArray[np.bool_]) -> Doubles:
        """The sums at mu with those of the labels, of the classes that are not done."""
        if not done.all():
            found = self.columns.sums(mu, self.tau, done, True).T
            table[:, ~done] = self.add_up(found[:, ~done])
        return table


def solve(columns: Columns, k: Doubles, tau: Doubles, total: float, rows: int, reduce: Reduce) -> Solution:
    """Thresholds of all classes, whose columns have this weight in total and this many rows on all machines."""
    start = _start(columns, k, tau, total, rows, reduce)
    passes = _Passes(columns, k, tau, reduce, always=rows <= FEW)
    extreme = (k == 0) | (k == total)  # all 0 or all 1
    table, mu = np.zeros((5, columns.classes)), np.where(k == 0, np.inf, -np.inf)
    if not extreme.all():
        found = search(np, passes, k, tau, start, EXACT, MOST_PASSES, reduce=passes.add_up, settled=extreme)
        table, mu = found.sums, np.where(extreme, mu, found.mu)
    flat = extreme | is_flat(np, table[ACTIVE_SUM], table[ACTIVE], FLAT * table[ACTIVE])
    if flat.any():
        mu = np.where(flat, _middle(columns, mu, tau, reduce), mu)
    table = passes.finish(mu, table, passes.labeled & ~flat)
    if (abs(table[ACTIVE_SUM] + table[ONES] - k) > 1e-9 * total).any():
        _check_infinite(columns, k, reduce)
    some = table[ACTIVE] > 0
    mean = np.where(some, table[ACTIVE_SUM] - table[POSITIVE], 0.0) / np.where(some, table[ACTIVE], 1.0)
    return Solution(mu, mean, table[SQUARE])


def _start(columns: Columns, k: Doubles, tau: Doubles, total: float, rows: int, reduce: Reduce) -> Start:
    """Near the mean of the scores; of long columns, at the thresholds of a sample."""
    step = -(-rows // SAMPLE)
    sample = columns.sample(step) if step > 1 else columns
    weight, *moments = reduce(sample.moments(), "sum")
    finite, first, second = np.reshape(moments, (3, -1))
    if not np.isfinite(first).all():
        raise ValueError("y_pred must not overflow when summed, got scores beyond the range of float64")
    mean, square = first / np.maximum(finite, 1e-300), second / np.maximum(finite, 1e-300)
    nowhere = np.full(columns.classes, np.inf)
    width = tau + np.sqrt(np.maximum(square - mean * mean, 0.0)) / 4
    start = Start(mean - tau / 2, -nowhere, nowhere, width)
    if step == 1 or not weight > 0:
        return start
    part = weight / total
    passes = _Passes(sample, k * part, tau, reduce)
    found = search(np, passes, k * part, tau, start, ROUGH, PATIENCE - 1, reduce=passes.add_up)
    # A sample is wrong by its standard error, so a jump of a few of those finds the other bound.
    mu = np.where(found.exact, found.mu, start.mu)
    return start._replace(mu=mu, width=np.where(found.exact, 0.02 * (width + tau), width))


def _check_infinite(columns: Columns, k: Doubles, reduce: Reduce) -> None:
    """Whether infinite scores leave a projection that sums to k. Reads every score: only where a search got lost."""
    infinite = columns.infinite()
    usable, ones = reduce(infinite.ravel(), "sum").reshape(infinite.shape)
    for c, number in enumerate(k):
        slack, said = 1e-9 * max(usable[c], number), _checks.plain_number(float(number))
        if ones[c] > number + slack:
            most = f"y_pred must be +inf in rows of weight k = {said} at most"
            raise ValueError(f"{most}, got weight {_checks.plain_number(float(ones[c]))} in column {c}")
        if usable[c] < number - slack:
            most = f"k must be at most {_checks.plain_number(float(usable[c]))}"
            raise ValueError(f"{most}, the weight of the rows of column {c} whose y_pred is not -inf, got {said}")


def _middle(columns: Columns, mu: Doubles, tau: Doubles, reduce: Reduce) -> Doubles:
    """The middle of the interval of thresholds around mu."""
    gap = columns.gap(mu, tau) * [1, -1]
    zero, one = (reduce(gap.ravel(), "max").reshape(gap.shape) * [1, -1]).T
    result: Doubles = middle(np, zero, one, tau)
    return result
