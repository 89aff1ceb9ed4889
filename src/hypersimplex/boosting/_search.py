"""The thresholds of whole columns of scores: Newton steps between a lower and an upper bound.

Only sums leave a pass, so one path serves one machine and many: `reduce` adds up the sums of all of them, and every
machine draws the same conclusions. Per pass five numbers of every class travel, never a score.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hypersimplex import _checks
from hypersimplex.boosting._columns import ACTIVE, ACTIVE_SUM, ONES, POSITIVE, SQUARE, Columns, Doubles

Reduce = Callable[[Doubles, str], Doubles]  # the numbers of all machines, combined by "sum" or "max"

SAMPLE = 1 << 16  # rows that give the first threshold of longer columns
EXACT = 1e-10  # the mean error of a projection: a thousandth of what float32 gradients can show
MOST_PASSES = 200  # bisection alone needs fewer
PATIENCE = 20  # passes for finding both bounds, by jumps that grow fourfold, before infinite scores are suspected


class Solution(NamedTuple):
    mu: Doubles
    mean: Doubles  # the mean error of the active rows
    square: Doubles  # the sum of all squared errors


@dataclass
class Bracket:
    """The search for one class's threshold."""

    k: float
    tau: float
    mu: float
    width: float  # how far to jump while one bound is unknown
    lo: float = -math.inf
    hi: float = math.inf
    r_lo: float = 0.0
    r_hi: float = 0.0
    last: float = math.inf  # the residual before
    error: float = math.inf  # the residual for each active row
    settled: bool = False

    def lost(self) -> bool:
        """Whether one of the bounds is still unknown."""
        return not self.settled and math.isinf(self.hi - self.lo)

    def look(self, active_sum: float, active: float, ones: float, enough: float) -> None:
        """Judge mu by its sums; move it, or settle."""
        r = active_sum + ones - self.k
        self.error = abs(r) / active if active > 0 else math.inf
        if self.error <= enough or abs(r) <= (0 if active > 0 else 1e-12 * self.k):
            self.settled = True
            return
        if r > 0:
            self.lo, self.r_lo = self.mu, r
        else:
            self.hi, self.r_hi = self.mu, r
        newton = self.mu + r * self.tau / active if active > 0 else math.nan
        improved = abs(r) <= 0.5 * self.last
        self.last = abs(r)
        if self.lo < newton < self.hi and (improved or math.isinf(self.hi - self.lo)):
            self.mu = newton
        elif math.isinf(self.hi - self.lo):
            self.mu += self.width if r > 0 else -self.width
            self.width *= 4
        else:
            share = min(max(self.r_lo / (self.r_lo - self.r_hi), 0.1), 0.9) if improved else 0.5
            self.mu = self.lo + (self.hi - self.lo) * share
        # Neighbouring numbers, and the sum jumps over k between them: rounding, nothing better exists.
        if not self.lo < self.mu < self.hi:
            self.mu, self.settled = self.hi, True


def solve(columns: Columns, k: Doubles, tau: Doubles, total: float, rows: int, reduce: Reduce) -> Solution:
    """Thresholds of all classes, whose columns have this weight in total and this many rows on all machines."""
    step = -(-rows // SAMPLE)
    sample = columns.sample(step) if step > 1 else columns
    moments = reduce(sample.moments(), "sum")
    share = moments[0] / total if total > 0 else 0.0
    finite, first, second = moments[1:].reshape(3, -1)
    starts = []
    for c in range(columns.classes):
        if not math.isfinite(first[c]):
            raise ValueError("y_pred must not overflow when summed, got scores beyond the range of float64")
        mean = first[c] / max(finite[c], 1e-300)
        deviation = math.sqrt(max(second[c] / max(finite[c], 1e-300) - mean * mean, 0.0))
        starts.append(Bracket(k[c], tau[c], mean - tau[c] / 2, tau[c] + deviation / 4))
    brackets = starts
    if step > 1 and share > 0:
        guesses = [replace(b, k=b.k * share) for b in starts]
        _run(sample, guesses, tau, 1e-3, reduce)
        # A sample is wrong by its standard error, so a jump of a few of those finds the other bound.
        brackets = [
            start if b.lost() else Bracket(start.k, b.tau, b.mu, 0.02 * (b.width + b.tau), error=0.01)
            for b, start in zip(guesses, starts, strict=True)
        ]
    mu = np.array([b.mu for b in brackets])
    for c, b in enumerate(brackets):
        if k[c] in (0.0, total):  # all 0 or all 1
            mu[c], b.settled, b.error = (math.inf if k[c] == 0 else -math.inf), True, math.inf
    sums = _run(columns, brackets, tau, EXACT, reduce)
    for c, b in enumerate(brackets):
        mu[c] = mu[c] if math.isinf(mu[c]) else b.mu
    flat = [_is_flat(sums[c, ACTIVE_SUM], sums[c, ACTIVE], k[c], total) for c in range(columns.classes)]
    if any(flat):
        mu = np.where(flat, _middle(columns, mu, tau, reduce), mu)
        sums = _pass(columns, mu, tau, np.zeros(len(mu), bool), True, reduce)
    if (abs(sums[:, ACTIVE_SUM] + sums[:, ONES] - k) > 1e-9 * total).any():
        _check_infinite(columns, k, reduce)
    mean_error = [
        (sums[c, ACTIVE_SUM] - sums[c, POSITIVE]) / sums[c, ACTIVE] if sums[c, ACTIVE] > 0 else 0.0
        for c in range(columns.classes)
    ]
    return Solution(mu, np.array(mean_error), sums[:, SQUARE])


def _is_flat(active_sum: float, active: float, k: float, total: float) -> bool:
    """Whether no row is active but for rounding: any threshold between two scores will do."""
    return k in (0.0, total) or min(active_sum, active - active_sum) <= 1e-9 * active


def _run(columns: Columns, brackets: list[Bracket], tau: Doubles, enough: float, reduce: Reduce) -> Doubles:
    """Pass after pass until every class is settled; the sums at the thresholds found."""
    sums = np.zeros((len(brackets), 5))
    fresh = [False] * len(brackets)  # whether a class's sums include its labels and belong to its last mu
    for number in range(MOST_PASSES):
        skip = np.array([b.settled for b in brackets])
        if skip.all():
            break
        if number == PATIENCE and any(b.lost() for b in brackets):
            if enough > EXACT:  # a sample may well be lost
                break
            _check_infinite(columns, np.array([b.k for b in brackets]), reduce)
        # The labels are read when a pass may be the last.
        near = enough == EXACT and all(b.settled or b.error < 1e-4 for b in brackets)
        at = np.array([b.mu for b in brackets])
        found = _pass(columns, at, tau, skip, near, reduce)
        for c, b in enumerate(brackets):
            if not skip[c]:
                sums[c] = found[c]
                b.look(found[c, ACTIVE_SUM], found[c, ACTIVE], found[c, ONES], enough)
                fresh[c] = near and b.mu == at[c]
    if enough == EXACT and not all(fresh):
        sums = _pass(columns, np.array([b.mu for b in brackets]), tau, np.array(fresh), True, reduce) + np.where(
            np.array(fresh)[:, None], sums, 0.0
        )
    return sums


def _pass(columns: Columns, mu: Doubles, tau: Doubles, skip: np.ndarray, with_labels: bool, reduce: Reduce) -> Doubles:
    sums = columns.sums(mu, tau, skip, with_labels)
    sums = reduce(sums.ravel(), "sum").reshape(sums.shape)
    for c in np.flatnonzero(np.isnan(sums[:, ACTIVE_SUM])):
        raise ValueError(f"y_pred must not be NaN, got NaN in column {c}")
    return sums


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
    """The middle of the interval of thresholds around mu, or its finite end if only one end is finite."""
    gap = columns.gap(mu, tau)
    gap[:, 1] *= -1
    zero, one = (reduce(gap.ravel(), "max").reshape(gap.shape) * [1, -1]).T
    middle = [
        z if math.isinf(o) else o - t if math.isinf(z) else z + ((o - z) - t) / 2
        for z, o, t in zip(zero, one, tau, strict=True)
    ]
    return np.array([m if math.isfinite(m) else 0.0 for m in middle])
