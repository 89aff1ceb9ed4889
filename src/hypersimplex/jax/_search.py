"""The search for the thresholds of all slices at once: Newton steps inside brackets, a bounded number of them.

A threshold is a pair (c, e): mu = c + e tau, with c a number of the array's dtype and e small. An entry near mu is
then (x - c)/tau - e, and x - c is exact: in float32 an x of 1e6 with a tau of 1e-3 loses nothing. Counts are integers,
so that a float32 sum only ever holds entries strictly between 0 and 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hypersimplex.jax._along import Along, Array

_NEWTON_STEPS = 12
_SAMPLED_FROM = 16_384


class Goal(NamedTuple):
    """What a slice should sum to, k = whole + part, and its temperature."""

    whole: Array
    part: Array
    tau: Array

    def k(self) -> Array:
        return self.whole.astype(self.part.dtype) + self.part


class Sums(NamedTuple):
    """What a slice sums to: the entries strictly between 0 and 1, how many they are, and how many are 1."""

    inside: Array
    active: Array
    ones: Array

    def excess(self, goal: Goal) -> Array:
        return (self.ones - goal.whole).astype(self.inside.dtype) + (self.inside - goal.part)


class Point(NamedTuple):
    """A threshold, mu = c + e tau."""

    c: Array
    e: Array

    def moved(self, step: Array, tau: Array) -> "Point":
        e, largest = self.e + step, float(jnp.finfo(tau.dtype).max)
        c = jnp.clip(self.c + e * tau, -largest, largest)
        return Point(c, e - (c - self.c) / tau)

    def minus(self, other: "Point", tau: Array) -> Array:
        return (self.c - other.c) / tau + (self.e - other.e)


def _select(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def unclipped(x: Array, at: Point, tau: Array) -> Array:
    """y before it is clipped."""
    return (x - at.c) / tau - at.e


def _sums_at(x: Array, at: Point, inverse: Array, along: Along) -> Sums:
    """One pass over the array."""
    t = (x - at.c) * inverse - at.e
    inside = jnp.where(t >= 1, 0, jnp.maximum(t, 0))  # a NaN stays in the sum and spoils its slice
    total, positive, ones = along.totals(inside, (t > 0).astype(jnp.int32), (t >= 1).astype(jnp.int32))
    return Sums(total, positive - ones, ones)


class _State(NamedTuple):
    step: Array
    at: Point
    lo: Point
    hi: Point
    width: Array  # how far to jump while one end of the bracket is unknown
    last: Array
    settled: Array
    seen: Point  # where sums were taken
    sums: Sums


def find_threshold(x: Array, goal: Goal, n: Array, along: Along) -> tuple[Point, Sums]:
    """Return a point at which every slice, of size n, sums to its k, as nearly as the dtype can tell, and the sums.

    If more entries are +inf than k asks for the point is the largest number; if too many are -inf, the smallest.
    """
    largest = float(jnp.finfo(x.dtype).max)
    start, width = _start(x, goal, n, along)
    # k of 0 and k of n need no search: every finite entry lies on one side.
    none, full = goal.k() == 0, goal.k() >= n
    end = Point(jnp.where(full, -largest, largest), jnp.where(full, jnp.asarray(-2, x.dtype), 2))
    # Every third step after the first few halves the number of floating-point numbers left.
    steps = _NEWTON_STEPS + 3 * (jnp.finfo(x.dtype).bits + 4)
    return _search(x, goal, n, _select(none | full, end, start), width, along, steps)


def _search(x: Array, goal: Goal, n: Array, start: Point, width: Array, along: Along, steps: int) -> tuple[Point, Sums]:
    largest = float(jnp.finfo(x.dtype).max)

    def everywhere(value: Any, dtype: Any = None) -> Array:
        # One constant for each slice, but with the slices' sharding type, which shard_map wants of a loop's state.
        value = jnp.asarray(value, dtype or x.dtype)
        return jnp.where(start.c == start.c, value, value)

    def go_on(s: _State) -> Array:
        return (s.step == 0) | ((s.step < steps) & ~jnp.all(s.settled))

    start = Point(start.c, everywhere(start.e))
    nothing = Sums(everywhere(0), everywhere(0, jnp.int32), everywhere(0, jnp.int32))
    ends = Point(everywhere(-largest), everywhere(-2)), Point(everywhere(largest), everywhere(2))
    first = _State(
        jnp.asarray(0), start, *ends, everywhere(width), everywhere(jnp.inf), everywhere(False, bool), start, nothing
    )
    end = lax.while_loop(go_on, lambda s: _looked(s, x, goal, n, along), first)
    return end.seen, end.sums


def _looked(s: _State, x: Array, goal: Goal, n: Array, along: Along) -> _State:
    """The state after one pass over the array: a narrower bracket, and the next point to look at."""
    tau, largest = goal.tau, float(jnp.finfo(x.dtype).max)
    sums = _sums_at(x, s.at, 1 / tau, along)
    r = sums.excess(goal)
    size, active = jnp.abs(r), sums.active.astype(x.dtype)
    beyond = (above_all(s.at) & (r > 0)) | (below_all(s.at) & (r < 0))
    settled = s.settled | _enough(size, active, s.last) | beyond | jnp.isnan(r)
    lo, hi = _select(r > 0, s.at, s.lo), _select(r > 0, s.hi, s.at)
    newton = s.at.moved(_step(r, sums, goal, n), tau)
    # Not to the end that was seen before: its own step may well lead back here, and so forever.
    ahead = (active > 0) & (jnp.where(r > 0, hi.minus(newton, tau), newton.minus(lo, tau)) > 0)
    known = (lo.c > -largest) & (hi.c < largest)
    early = s.step < _NEWTON_STEPS
    jump = jnp.clip(s.at.c + jnp.where(r > 0, s.width, -s.width), -largest, largest)
    middle = jnp.where(early, jnp.where(known, lo.c / 2 + hi.c / 2, jump), between(lo.c, hi.c))
    # Half a tau below a number, the entries equal to it are active.
    other = Point(middle, jnp.full_like(middle, -0.5))
    within = _inside(lo, other, hi, tau)
    other = _select(within | (early & ~known), other, _narrowed(lo, middle, hi, tau))
    # Newton steps alone may come from one side only: every third step halves what is left of the bracket.
    following = _select(ahead & (early | (s.step % 3 != 2)), newton, other)
    return _State(
        step=s.step + 1,
        at=_select(settled, s.at, following),
        lo=lo,
        hi=hi,
        width=jnp.where(ahead | known, s.width, 4 * s.width),
        last=jnp.where(active > 0, size, jnp.inf),  # where k is tiny, no active entry is not nearly right
        settled=settled,
        seen=s.at,
        sums=sums,
    )


def above_all(at: Point) -> Array:
    """Whether every finite entry is 0 at this point."""
    return (at.c >= float(jnp.finfo(at.c.dtype).max)) & (at.e >= 0)


def below_all(at: Point) -> Array:
    """Whether every finite entry is 1 at this point."""
    return (at.c <= -float(jnp.finfo(at.c.dtype).max)) & (at.e <= -1)


def _inside(lo: Point, at: Point, hi: Point, tau: Array) -> Array:
    return (at.minus(lo, tau) > 0) & (hi.minus(at, tau) > 0)


def _narrowed(lo: Point, middle: Array, hi: Point, tau: Array) -> Point:
    """Half way from lo to hi; if that is many tau, at middle, or a tau below hi.c, or at lo.c.

    Between neighboring numbers there may be 1e30 tau, too many to halve. But entries are numbers: with neighbors for
    lo.c and hi.c the sums change only in the tau below each.
    """
    width = hi.minus(lo, tau)
    following = lo.moved(width / 2, tau)
    for c, e in ((lo.c, 0), (hi.c, -1), (middle, 0)):
        other = Point(c, jnp.full_like(c, e))
        following = _select((width > 2) & _inside(lo, other, hi, tau), other, following)
    return following


def _start(x: Array, goal: Goal, n: Array, along: Along) -> tuple[Point, Array]:
    """A first threshold, and how far to jump from it: that of a normal slice of the same mean and variance."""
    size = x.shape[along.axis]
    if size < _SAMPLED_FROM:
        return _guess(x, goal, n, along)
    # A sample is searched first, which costs next to nothing.
    stride = size // max(512, min(8192, size // 32))
    sample = lax.slice_in_dim(x, 0, size, stride, axis=along.axis)
    share = sample.shape[along.axis] / size
    k = goal.k() * share
    small = Goal(jnp.floor(k).astype(jnp.int32), k - jnp.floor(k), goal.tau)
    start, width = _guess(sample, goal, n, along)
    found, _ = _search(sample, small, n * share, start, width, along, steps=6)
    usable = jnp.isfinite(found.c) & (jnp.abs(found.c) < float(jnp.finfo(x.dtype).max))
    return Point(jnp.where(usable, found.c, start.c), jnp.where(usable, found.e, 0)), width / 4


def _guess(x: Array, goal: Goal, n: Array, along: Along) -> tuple[Point, Array]:
    finite = jnp.isfinite(x)
    (count,) = along.totals(finite.astype(x.dtype))
    count = jnp.maximum(count, 1)
    (mean,) = along.totals(jnp.where(finite, x / count, 0))
    (variance,) = along.totals(jnp.where(finite, jnp.square(x - mean) / count, 0))
    odds = (n - goal.k()) / goal.k()
    z = 3 * (odds * odds - 1) / (odds * odds + 4 * odds + 1) / 1.702
    spread = jnp.sqrt(variance + goal.tau * goal.tau / 12)
    guess = mean - goal.tau / 2 + spread * z
    width = goal.tau + spread / 4
    usable = jnp.isfinite(guess)
    return Point(jnp.where(usable, guess, 0), jnp.zeros_like(guess)), jnp.where(usable, width, 1 + 0 * goal.tau)


def _step(r: Array, sums: Sums, goal: Goal, n: Array) -> Array:
    """The Newton step in units of tau; far away on log f, since a tail is closer to an exponential than to a line."""
    total, k = sums.ones.astype(r.dtype) + sums.inside, goal.k()
    small = 2 * k <= n
    part, wanted = jnp.where(small, total, n - total), jnp.where(small, k, n - k)
    q = part / wanted
    far = 3 * (q * q - 1) / (q * q + 4 * q + 1) * part
    rise = jnp.where(jnp.abs(q - 1) < 0.25, r, jnp.where(small, far, -far))
    return rise / jnp.maximum(sums.active, 1).astype(r.dtype)


def _enough(size: Array, active: Array, last: Array) -> Array:
    """Whether the residual is what rounding explains: small, or small and no longer shrinking."""
    eps = float(jnp.finfo(size.dtype).eps)
    stalled = (size <= 16 * eps * active) & (size > last / 2)
    return jnp.where(active == 0, size == 0, (size <= 0.25 * eps * active) | stalled)


def kth_largest_key(key: Array, place: Array, along: Along) -> Array:
    """The largest key with at least `place` entries at or above it: that of the place-th largest entry."""

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        lo, hi = ends
        middle = middle_key(lo, hi)
        enough = along.total((key >= middle).astype(jnp.int32)) >= place
        return jnp.where(enough, middle, lo), jnp.where(enough, hi, jnp.maximum(middle - 1, lo))

    ends = ~along.most(~key), along.most(key)
    kth, _ = lax.fori_loop(0, jnp.iinfo(key.dtype).bits, halve, ends)
    return kth  # type: ignore[no-any-return]


def between(lo: Array, hi: Array) -> Array:
    """The number with as many floating-point numbers below it, down to lo, as above it, up to hi; rounded up."""
    return key_to_number(middle_key(number_to_key(lo), number_to_key(hi)), lo.dtype)


def middle_key(a: Array, b: Array) -> Array:
    """The integer half way, rounded up, without overflow."""
    return (a & b) + ((a ^ b) >> 1) + ((a ^ b) & 1)


def number_to_key(x: Array) -> Array:
    """Integers in the order of the numbers; -0.0 and 0.0 share one."""
    integer = jnp.int64 if x.dtype == jnp.float64 else jnp.int32
    raw = lax.bitcast_convert_type(jnp.where(x == 0, 0, x), integer)
    return jnp.where(raw < 0, raw ^ jnp.iinfo(integer).max, raw)


def key_to_number(key: Array, dtype: Any) -> Array:
    return lax.bitcast_convert_type(jnp.where(key < 0, key ^ jnp.iinfo(key.dtype).max, key), dtype)
