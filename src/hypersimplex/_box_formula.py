"""Box sections by one set of formulas for torch and JAX: what is around the search for mu, and the derivatives.

Slices lie along the last dim. `xp` is torch or jax.numpy.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Array = Any  # of torch or of JAX


class Problem(NamedTuple):
    """total and tau have a size of 1 along the last dim, the others the shape of x."""

    xp: Any
    ratio: Array  # x/weight: measured so, an entry leaves its bound at a number, and at the same one in every sum
    total: Array
    lower: Array
    upper: Array
    weight: Array
    tau: Array

    def place(self, mu: Array, low: Array = 0.0) -> Array:
        """y before it is clipped, at mu + low."""
        return ((self.ratio - mu) - low) * self.weight / self.tau

    def clip(self, t: Array) -> Array:
        return self.xp.clip(t, self.lower, self.upper)

    def start(self) -> tuple[Array, Array]:
        """The mu of a slice whose entries are all free, and how far to jump from it."""
        xp, finite = self.xp, self.xp.isfinite(self.ratio)
        ratio, squares = xp.where(finite, self.ratio, 0), xp.where(finite, self.weight * self.weight, 0)
        total = xp.clip(_sum(squares), float(xp.finfo(ratio.dtype).tiny))
        mean = _sum(squares * ratio) / total
        variance = _sum(squares * xp.square(ratio - mean)) / total
        mu = xp.nan_to_num(mean - self.tau * self.total / total, nan=0.0)
        return mu, self.tau + xp.sqrt(xp.nan_to_num(variance)) / 4

    def between(self, mu: Array) -> tuple[Array, Array]:
        """As much of y on either side of mu as makes the total, and whether the sum steps over the total there."""
        xp = self.xp
        ends = (xp.nextafter(mu, xp.full_like(mu, end)) for end in (-math.inf, math.inf))
        more, less = (self.clip(self.place(end)) for end in ends)
        most, least = _sum(self.weight * more), _sum(self.weight * less)
        steps, above, below = most > least, most - self.total, self.total - least
        # From the nearer side, lest an infinite bound of the other swallow it.
        up, gap = above < below, xp.where(steps, most - least, 1)
        share, step = xp.clip(xp.where(up, above, below) / gap, 0, 1), more - less
        y = xp.where(up, more - share * step, less + share * step)
        return xp.where(more == less, more, y), steps

    def snap(self, t: Array, room: Array) -> Array:
        """y. What rounding keeps from a bound is put there: an entry that is not free must not look so."""
        xp, few = self.xp, 4 * float(self.xp.finfo(t.dtype).eps)
        t = xp.where(t >= self.upper - (few * _size(xp, self.upper) + room), self.upper, t)
        return self.clip(xp.where(t <= self.lower + (few * _size(xp, self.lower) + room), self.lower, t))


def solve(
    xp: Any,
    given: tuple[Array, ...],
    at_most: bool,
    rounding: float,
    room: float,
    excess: Callable[[Problem], Array],
    search: Callable[[Problem, Array], tuple[Array, Array]],
) -> tuple[Array, Array]:
    """Return y and mu of every slice; NaN where there is no solution. given: x, total, lower, upper, weight and tau.

    mu is 0 where the total of an `at_most` is not reached, and infinite where infinite entries share the total.
    `search(p, settled)` gives y and mu of the slices that are not settled, `excess(p)` what a slice sums to at mu = 0,
    less its total. As a share of the bounds' size, a total may miss them by `room`, and meets them within `rounding`.
    """
    x, total, lower, upper, weight, tau = given
    certain = x == math.inf
    least, most = _sum(weight * lower), _sum(weight * xp.where(x == -math.inf, lower, upper))
    size = _sum(_size(xp, weight * lower) + _size(xp, weight * upper))
    broken = xp.isnan(x) | ~(lower <= upper) | ~((weight > 0) & (weight < math.inf))
    good = ~broken.any(-1, keepdims=True) & (tau > 0) & xp.isfinite(tau) & (total >= least - room * size)
    good = good & (at_most | (total <= most + room * size))
    # More entries at +inf than there is budget: they share it as equals would.
    extra = _sum(xp.where(certain, weight * (upper - lower), 0))
    crowded = certain.any(-1, keepdims=True) & (least + extra > total)
    x = xp.where(crowded & certain, 0, xp.where(crowded, -math.inf, x))
    p = Problem(xp, x / weight, total, *_within_reach(xp, given, least, most, at_most), weight, tau)
    slack = ~crowded & (excess(p) <= 0) if at_most else xp.zeros_like(crowded)
    bottom, top = ~slack & (total <= least + rounding * size), ~slack & (total >= most - rounding * size)
    y, mu = search(p, slack | bottom | top | ~good)
    y = xp.where(slack, p.snap(x / tau, 0.0), y)
    y = xp.where(bottom, lower, xp.where(top, xp.where(x == -math.inf, lower, upper), y))
    mu = xp.where(slack, 0, xp.where(crowded, math.inf, mu))
    return xp.where(good, y, math.nan), xp.where(good, mu, math.nan)


def _within_reach(xp: Any, given: tuple[Array, ...], least: Array, most: Array, at_most: bool) -> tuple[Array, Array]:
    """The bounds, but none that is infinite where the others keep y from it: sums far from mu would swallow the total.

    An entry lies above its lower bound by what the total leaves beyond the least, or less; twice that changes nothing.
    A total that may be missed keeps nothing from -inf.
    """
    _, total, lower, upper, weight, _ = given
    above, below = xp.clip(2 * (total - least), 0), xp.clip(2 * (most - total), 0)
    bottom = lower if at_most else xp.where(xp.isfinite(most) & (lower == -math.inf), upper - below / weight, lower)
    top = xp.where(xp.isfinite(least) & (upper == math.inf), lower + above / weight, upper)
    return bottom, top


def _sum(terms: Array) -> Array:
    return terms.sum(-1, keepdims=True)


def _size(xp: Any, value: Array) -> Array:
    return xp.where(xp.isfinite(value), xp.abs(value), 0)


def centered(
    xp: Any, v: Array, y: Array, mu: Array, lower: Array, upper: Array, weight: Array, tau: Array, at_most: bool
) -> Array:
    """(v - w m)/tau on the free entries, 0 elsewhere: how y moves with x by v, and the gradient of sum(v y) to x."""
    free = ~((y <= lower) | (y >= upper))
    own, v = xp.where(free, weight, 0), xp.where(free, v, 0)
    squares = _sum(own * own)
    m = _sum(own * v) / xp.where(squares == 0, 1, squares)
    if at_most:
        m = xp.where(mu == 0, 0, m)
    # Where mu is infinite, the free entries are infinite too, and share what there is.
    return xp.where(xp.isinf(mu), 0, (v - own * m) / tau)


def correction(
    xp: Any, constant: Callable[[Array], Array], y: Array, mu: Array, at_most: bool, *arguments: Array
) -> Array:
    """What to add to y: it is 0 and has the derivatives, to any order, in every mode.

    While the free entries A stay the same, and with x measured from mu * weight, where it is tau * y:

        nu = (sum_A weight x/tau + sum_(not A) weight bound - total) / sum_A weight^2
        y = x/tau - nu * weight on A, and the bound elsewhere.

    arguments: x, total, lower, upper, weight, and with tau its inverse, a constant, and the ratio of it, as a
    constant, to itself. `constant` stops derivatives. y and mu are constants, y = clip((x - mu * weight)/tau, lower,
    upper). mu is 0 where the total of an `at_most` is not reached, and infinite where infinite entries share the total.
    """
    x, total, lower, upper, weight, inverse, ratio = arguments
    low = y <= constant(lower)
    high = ~low & (y >= constant(upper))
    free = ~(low | high)
    # Differences of infinities would be NaN, and so would the products of an infinite mu.
    moved = xp.where(xp.isfinite(constant(x)), x - constant(x), 0)
    dearer = weight - constant(weight)
    moved = moved - xp.where(xp.isfinite(mu), mu, 0) * dearer
    # Infinite entries share as if x were 0: there nu is -y/weight.
    shared = xp.where(xp.isinf(mu), y / constant(weight), 0)
    from_mu = xp.where(free, (y + moved * inverse + shared * dearer) * ratio, 0)
    bound = xp.where(low, lower, xp.where(high, upper, 0))
    squares = _sum(xp.where(free, weight * weight, 0))
    excess = _sum(weight * (from_mu + bound)) - total
    nu = excess / xp.where(squares == 0, 1, squares)
    if at_most:
        nu = xp.where(mu == 0, 0, nu)
    change = xp.where(free, from_mu - nu * weight, bound)
    return change - constant(change)
