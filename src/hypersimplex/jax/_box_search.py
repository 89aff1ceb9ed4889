"""The search for a box section's mu, of all slices at once; slices lie along the last axis.

In single precision a sum of many entries at their bounds would swallow the digits of the few free ones: sums are pairs
of numbers, of which the second holds what the first has rounded away.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from hypersimplex import _box_formula, _checks
from hypersimplex._box_formula import Problem
from hypersimplex.jax._along import Array
from hypersimplex.jax._search import between

_NEWTON_STEPS = 12


class Sums(NamedTuple):
    residual: Array
    free: Array  # the squared weights of the free entries
    bulk: Array  # sum(weight * |y|)


def _sums(p: Problem, mu: Any, low: Any) -> Sums:
    t = p.place(mu, low)
    part = p.weight * p.clip(t)
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
    lo_low: Array
    hi: Array
    hi_low: Array
    width: Array  # how far to jump while one end of the bracket is unknown
    last: Array
    settled: Array


def solve(
    x: Array, total: Array, lower: Array, upper: Array, weight: Array, tau: Array, at_most: bool
) -> tuple[Array, Array]:
    lower, upper, weight = (jnp.broadcast_to(v, x.shape) for v in (lower, upper, weight))
    given, room = (x, total, lower, upper, weight, tau), _checks.box_room(float(jnp.finfo(x.dtype).eps))
    return _box_formula.solve(jnp, given, at_most, 0.0, room, lambda p: _sums(p, 0.0, 0.0).residual, _search)


def _search(p: Problem, settled: Array) -> tuple[Array, Array]:
    largest = float(jnp.finfo(p.ratio.dtype).max)
    start, width = p.start()
    zero = jnp.zeros_like(start)
    steps = _NEWTON_STEPS + 3 * (jnp.finfo(p.ratio.dtype).bits + 4)
    ends = (zero - largest, zero, zero + largest, zero)
    first = _State(jnp.asarray(0), start, zero, *ends, width, zero + jnp.inf, settled)
    end = lax.while_loop(lambda s: (s.step < steps) & ~jnp.all(s.settled), lambda s: _stepped(s, p, largest), first)
    return _finish(p, end.mu, end.low), end.mu + end.low


def _stepped(s: _State, p: Problem, largest: float) -> _State:
    eps = float(jnp.finfo(p.ratio.dtype).eps)
    sums = _sums(p, s.mu, s.low)
    r, some = sums.residual, sums.free > 0
    size = jnp.abs(r)
    change = r * p.tau / jnp.where(some, sums.free, 1)
    still = some & (s.low + change == s.low)
    enough = (size <= eps * eps * sums.bulk) | ((size <= 4 * eps * sums.bulk) & (size > s.last / 2)) | still
    settled = s.settled | enough | jnp.isnan(r)
    rises = r > 0
    lo, lo_low = jnp.where(rises, s.mu, s.lo), jnp.where(rises, s.low, s.lo_low)
    hi, hi_low = jnp.where(rises, s.hi, s.mu), jnp.where(rises, s.hi_low, s.low)
    moved = s.low + change
    newton = s.mu + moved
    rest = moved - (newton - s.mu)
    known = (lo > -largest) & (hi < largest)
    early = s.step < _NEWTON_STEPS
    unseen = jnp.where(rises, (newton - hi) + (rest - hi_low) < 0, (newton - lo) + (rest - lo_low) > 0)
    ahead = some & unseen & (early | (s.step % 3 != 2))
    jump = jnp.clip(s.mu + jnp.where(rises, s.width, -s.width), -largest, largest)
    other = jnp.where(early, jnp.where(known, lo / 2 + hi / 2, jump), between(lo, hi))
    # Where no number is left between the ends, their digits beyond mu have a middle.
    apart = ~known | (((other - lo) - lo_low > 0) & ((hi - other) + hi_low > 0))
    middle = jnp.where(apart, 0, lo_low + ((hi - lo) + (hi_low - lo_low)) / 2)
    mu = jnp.where(ahead, newton, jnp.where(apart, other, lo))
    low = jnp.where(ahead, rest, middle)
    return _State(
        step=s.step + 1,
        mu=jnp.where(settled, s.mu, mu),
        low=jnp.where(settled, s.low, low),
        lo=lo,
        lo_low=lo_low,
        hi=hi,
        hi_low=hi_low,
        width=jnp.where(ahead | known, s.width, 4 * s.width),
        last=jnp.where(some, size, jnp.inf),
        settled=settled,
    )


def _finish(p: Problem, mu: Array, low: Array) -> Array:
    """y at mu + low; where the sum steps over the total there, as much of either side as makes the total."""
    eps = float(jnp.finfo(p.ratio.dtype).eps)
    t, sums = p.place(mu, low), _sums(p, mu, low)
    room = jnp.where(sums.free > 0, p.weight * eps * sums.bulk / jnp.where(sums.free > 0, sums.free, 1), 0)
    mixed, steps = p.between(mu)
    steps &= jnp.abs(sums.residual) > 64 * eps * sums.bulk
    return jnp.where(steps, mixed, p.snap(t, jnp.minimum(room, 4 * eps)))
