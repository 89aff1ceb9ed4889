"""The search for a box section's mu, of all slices at once; slices lie along the last axis.

In single precision a sum of many entries at their bounds would swallow the digits of the few free ones: sums are pairs
of numbers, of which the second holds what the first has rounded away.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from hypersimplex.jax._along import Array
from hypersimplex.jax._search import between

_NEWTON_STEPS = 12


class Problem(NamedTuple):
    x: Array
    total: Array
    lower: Array
    upper: Array
    weight: Array
    tau: Array

    def place(self, mu: Array, low: Array) -> Array:
        """y before it is clipped, at mu + low."""
        return ((self.x - mu * self.weight) - low * self.weight) / self.tau

    def at(self, mu: Array, low: Array) -> Array:
        return jnp.clip(self.place(mu, low), self.lower, self.upper)


class Sums(NamedTuple):
    residual: Array
    free: Array  # the squared weights of the free entries
    bulk: Array  # sum(weight * |y|)


def _sums(p: Problem, mu: Array, low: Array) -> Sums:
    t = p.place(mu, low)
    part = p.weight * jnp.clip(t, p.lower, p.upper)
    free = (t > p.lower) & (t < p.upper)
    zero = jnp.zeros_like(part)
    squares = jnp.where(free, p.weight * p.weight, zero)
    high, rest, count, bulk = _total((part, zero, squares, jnp.abs(part)))
    return Sums((high - p.total) + rest, count, bulk)


def _total(terms: tuple[Array, ...]) -> tuple[Array, ...]:
    """Sums over the last axis; the first two are one number in two parts."""

    def add(a: Any, b: Any) -> Any:
        s = a[0] + b[0]
        back = s - a[0]
        lost = (a[0] - (s - back)) + (b[0] - back)
        return s, a[1] + b[1] + lost, a[2] + b[2], a[3] + b[3]

    zeros = tuple(jnp.zeros((), t.dtype) for t in terms)
    return tuple(jnp.expand_dims(s, -1) for s in lax.reduce(terms, zeros, add, (terms[0].ndim - 1,)))


class _State(NamedTuple):
    step: Array
    mu: Array
    low: Array  # digits that mu has not
    lo: Array
    hi: Array
    width: Array  # how far to jump while one end of the bracket is unknown
    last: Array
    settled: Array


def solve(
    x: Array, total: Array, lower: Array, upper: Array, weight: Array, tau: Array, at_most: bool
) -> tuple[Array, Array]:
    """Return y and mu of every slice; NaN where there is no solution.

    mu is 0 where an at_most is not reached, and infinite where infinite entries share the total.
    """
    lower, upper, weight = (jnp.broadcast_to(v, x.shape) for v in (lower, upper, weight))
    eps = float(jnp.finfo(x.dtype).eps)
    masked, certain = x == -jnp.inf, x == jnp.inf
    least, most = _plainly(weight * lower), _plainly(weight * jnp.where(masked, lower, upper))
    size = _plainly(_size(weight * lower) + _size(weight * upper))
    good = ~jnp.any(jnp.isnan(x) | ~(lower <= upper) | ~((weight > 0) & (weight < jnp.inf)), -1, keepdims=True)
    good &= (tau > 0) & jnp.isfinite(tau) & (total >= least - 4 * eps * size)
    good &= at_most | (total <= most + 4 * eps * size)
    # More entries at +inf than there is budget: they share it as equals would.
    extra = _plainly(jnp.where(certain, weight * (upper - lower), 0))
    crowded = jnp.any(certain, -1, keepdims=True) & (least + extra > total)
    x = jnp.where(crowded, jnp.where(certain, 0, -jnp.inf), x).astype(x.dtype)

    p, zero = Problem(x, total, lower, upper, weight, tau), jnp.zeros_like(total)
    at_zero = _sums(p, zero, zero)
    slack = (at_zero.residual <= 0) & at_most & ~crowded
    bottom, top = ~slack & (total <= least), ~slack & (total >= most)
    mu, low = _search(p, slack | bottom | top | ~good)
    y = jnp.where(slack, p.at(zero, zero), _finish(p, mu, low))
    y = jnp.where(bottom, lower, jnp.where(top, jnp.where(x == -jnp.inf, lower, upper), y))
    mu = jnp.where(slack, 0, jnp.where(crowded, jnp.inf, mu + low))
    return jnp.where(good, y, jnp.nan), jnp.where(good, mu, jnp.nan)


def _plainly(terms: Array) -> Array:
    return jnp.sum(terms, -1, keepdims=True)


def _size(v: Array) -> Array:
    return jnp.where(jnp.isfinite(v), jnp.abs(v), 0)


def _search(p: Problem, settled: Array) -> tuple[Array, Array]:
    largest = float(jnp.finfo(p.x.dtype).max)
    finite = jnp.isfinite(p.x)
    x, weight = jnp.where(finite, p.x, 0), jnp.where(finite, p.weight, 0)
    squares = jnp.maximum(_plainly(weight * weight), float(jnp.finfo(p.x.dtype).tiny))
    mean = _plainly(weight * x) / squares
    spread = jnp.sqrt(_plainly(jnp.square(x - mean * weight)) / squares)
    start = jnp.nan_to_num(mean - p.tau * p.total / squares, nan=0.0)
    zero = jnp.zeros_like(start)
    width = p.tau + jnp.where(jnp.isfinite(spread), spread / 4, 1)
    steps = _NEWTON_STEPS + 3 * (jnp.finfo(p.x.dtype).bits + 4)
    first = _State(jnp.asarray(0), start, zero, zero - largest, zero + largest, width, zero + jnp.inf, settled)
    end = lax.while_loop(lambda s: (s.step < steps) & ~jnp.all(s.settled), lambda s: _stepped(s, p, largest), first)
    return end.mu, end.low


def _stepped(s: _State, p: Problem, largest: float) -> _State:
    eps = float(jnp.finfo(p.x.dtype).eps)
    sums = _sums(p, s.mu, s.low)
    r, some = sums.residual, sums.free > 0
    size = jnp.abs(r)
    change = r * p.tau / jnp.where(some, sums.free, 1)
    still = some & (s.low + change == s.low)
    enough = (size <= eps * eps * sums.bulk) | ((size <= 4 * eps * sums.bulk) & (size > s.last / 2)) | still
    settled = s.settled | enough | jnp.isnan(r)
    rises = r > 0
    lo, hi = jnp.where(rises, s.mu, s.lo), jnp.where(rises, s.hi, s.mu)
    moved = s.low + change
    newton = s.mu + moved
    known = (lo > -largest) & (hi < largest)
    early = s.step < _NEWTON_STEPS
    unseen = jnp.where(rises, newton < hi, newton > lo)
    ahead = some & unseen & (early | (s.step % 3 != 2))
    jump = jnp.clip(s.mu + jnp.where(rises, s.width, -s.width), -largest, largest)
    other = jnp.where(early, jnp.where(known, lo / 2 + hi / 2, jump), between(lo, hi))
    mu = jnp.where(ahead, newton, other)
    low = jnp.where(ahead, moved - (newton - s.mu), 0)
    return _State(
        step=s.step + 1,
        mu=jnp.where(settled, s.mu, mu),
        low=jnp.where(settled, s.low, low),
        lo=lo,
        hi=hi,
        width=jnp.where(ahead | known, s.width, 4 * s.width),
        last=jnp.where(some, size, jnp.inf),
        settled=settled,
    )


def _finish(p: Problem, mu: Array, low: Array) -> Array:
    """y at mu + low; where the sum steps over the total there, as much of either side as makes the total."""
    eps = float(jnp.finfo(p.x.dtype).eps)
    t, sums = p.place(mu, low), _sums(p, mu, low)
    # What rounding keeps from a bound is put there: an entry that is not free must not look so.
    room = jnp.where(sums.free > 0, p.weight * eps * sums.bulk / jnp.where(sums.free > 0, sums.free, 1), 0)
    few = 4 * eps
    t = jnp.where(t >= p.upper - (few * _size(p.upper) + jnp.minimum(room, few)), p.upper, t)
    t = jnp.where(t <= p.lower + (few * _size(p.lower) + jnp.minimum(room, few)), p.lower, t)
    zero = jnp.zeros_like(mu)
    more, less = (p.at(jnp.nextafter(mu, zero + end), zero) for end in (-jnp.inf, jnp.inf))
    most, least = _plainly(p.weight * more), _plainly(p.weight * less)
    step = (jnp.abs(sums.residual) > 64 * eps * sums.bulk) & (most > least)
    share = jnp.clip((p.total - least) / jnp.where(most > least, most - least, 1), 0, 1)
    mixed = jnp.where(more == less, more, less + share * (more - less))
    return jnp.where(step, mixed, jnp.clip(t, p.lower, p.upper))
