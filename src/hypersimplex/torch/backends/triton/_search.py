# mypy: ignore-errors
# ruff: noqa: N803 (what Triton fixes at compile time is written in capitals)
"""The search for thresholds as device functions: one tile of slices, their entries along its first dim.

A threshold is a pair (c, e): mu = c + e tau, both numbers of the dtype that entries are computed in, so that
(x - c)/tau - e keeps every digit. Most GPUs compute in float64 at 1/64 of their speed, and every thread of a program
repeats what is computed per slice. So the search computes in the entries' dtype. float64 are k, the sums over a slice
and what they are beyond k, for their digits cancel, and mu.
"""

import triton
import triton.language as tl

NEWTON_STEPS = tl.constexpr(12)
MOST_STEPS = tl.constexpr(12 + 3 * 68)
INF = tl.constexpr(float("inf"))
# Ratios beyond this one change no first guess and no step; their squares are numbers of float32.
FAR = tl.constexpr(1e9)
# Two counts of at most 32,768 are one sum.
HALF = tl.constexpr(65536)


@triton.jit
def entries(WIDE: tl.constexpr):
    """The dtype that entries are computed in."""
    return tl.constexpr(tl.float64 if WIDE else tl.float32)


@triton.jit
def measured(x, c, e, tau):
    """y before it is clipped."""
    off = x - c[None, :]
    if x.dtype == tl.float64:
        return off / tau[None, :] - e[None, :]
    else:  # in float32, / is an approximation
        return tl.math.div_rn(off, tl.zeros_like(off) + tau[None, :]) - e[None, :]


@triton.jit
def look(x, c, e, inverse):
    """Of every entry y if it is strictly between 0 and 1, else 0; and counts: 1 if y > 0, and HALF more if y = 1."""
    t = (x - c[None, :]) * inverse[None, :] - e[None, :]
    inside = tl.where(t >= 1, 0.0, tl.where(t <= 0, 0.0, t))  # a NaN stays
    return inside, (t > 0).to(tl.uint32) + tl.where(t >= 1, HALF, 0).to(tl.uint32)


@triton.jit
def counted(inside, counts):
    """The entries strictly between 0 and 1 summed, how many there are, and how many entries are 1."""
    both = tl.sum(counts, 0)
    ones = (both // HALF).to(tl.int32)
    active = (both % HALF).to(tl.int32) - ones
    return tl.sum(inside, 0).to(tl.float64), active.to(tl.float64), ones.to(tl.float64)


@triton.jit
def ends(x, c, e, tau):
    """The largest finite entry nearer to 0 than to 1, and the smallest nearer to 1: of use where none is between."""
    high, finite = measured(x, c, e, tau) > 0.5, (x > -INF) & (x < INF)
    zero = tl.max(tl.where(finite & (high == 0), x, -INF), 0)
    return zero, tl.min(tl.where(finite & high, x, INF), 0)


@triton.jit
def number_to_key(x, WIDE: tl.constexpr):
    """Integers in the order of the numbers."""
    if WIDE:
        raw = x.to(tl.int64, bitcast=True)
        return tl.where(raw < 0, raw ^ 0x7FFFFFFFFFFFFFFF, raw)
    else:
        raw = x.to(tl.int32, bitcast=True)
        return tl.where(raw < 0, raw ^ 0x7FFFFFFF, raw)


@triton.jit
def between(lo, hi, WIDE: tl.constexpr):
    """The number in the middle of all floating-point numbers from lo to hi, rounded up."""
    a, b = number_to_key(lo, WIDE), number_to_key(hi, WIDE)
    key = (a & b) + ((a ^ b) >> 1) + ((a ^ b) & 1)
    if WIDE:
        return tl.where(key < 0, key ^ 0x7FFFFFFFFFFFFFFF, key).to(tl.float64, bitcast=True)
    else:
        return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def largest(WIDE: tl.constexpr):
    return 1.7976931348623157e308 if WIDE else 3.4028234663852886e38


@triton.jit
def newton_step(total, k, n, active, dtype: tl.constexpr):
    """In units of tau; far away on log f, since a tail is closer to an exponential than to a line."""
    small = 2 * k <= n
    part, wanted = tl.where(small, total, n - total).to(dtype), tl.where(small, k, n - k).to(dtype)
    q = tl.minimum(part / tl.where(wanted == 0, 1.0, wanted), FAR)
    far = 3 * (q * q - 1) / (q * q + 4 * q + 1) * part
    rise = tl.where(tl.abs(q - 1) < 0.25, (total - k).to(dtype), tl.where(small, far, -far))
    return rise / tl.maximum(active, 1.0)


@triton.jit
def advance(
    inside, active, ones, k, n, tau, inverse, step, c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled,
    WIDE: tl.constexpr,
):  # fmt: skip
    """One safeguarded Newton step for every slice; a slice that is settled stays where it is."""
    dtype: tl.constexpr = c.dtype
    eps = 2.220446049250313e-16 if WIDE else 1.1920928955078125e-07
    top = largest(WIDE)
    total = inside + ones
    beyond_k = total - k
    up, some = beyond_k > 0, active.to(dtype)
    size = tl.abs(beyond_k.to(dtype))
    stalled = (size <= 16 * eps * some) & (size > last / 2)
    fine = tl.where(some == 0, beyond_k == 0, (size <= 0.25 * eps * some) | stalled)
    beyond = ((c >= top) & up) | ((c <= -top) & (beyond_k < 0))
    settled = tl.where(fine | beyond | (size != size), 1, settled)

    lo_c, lo_e = tl.where(up, c, lo_c), tl.where(up, e, lo_e)
    hi_c, hi_e = tl.where(up, hi_c, c), tl.where(up, hi_e, e)
    moved = e + newton_step(total, k, n, some, dtype)
    next_c = c + moved * tau
    next_e = moved - (next_c - c) * inverse
    # Not to the end that was seen before: its own step may well lead back here, and so forever.
    after, before = (next_c - lo_c) * inverse + (next_e - lo_e), (hi_c - next_c) * inverse + (hi_e - next_e)
    ahead = (some > 0) & (tl.where(up, before, after) > 0)
    known = (lo_c > -top) & (hi_c < top)
    early = step < NEWTON_STEPS
    jump = tl.minimum(tl.maximum(c + tl.where(up, width, -width), -top), top)
    jump = tl.where(tl.abs(c) < top, jump, 0.0)  # a sample's infinite entries may mislead
    probe = tl.where(known, lo_c / 2 + hi_c / 2, jump)
    probe = tl.where(early, probe, between(lo_c, hi_c, WIDE))
    # Half a tau below a number, the entries equal to it are active.
    within = ((probe - lo_c) * inverse - 0.5 - lo_e > 0) & ((hi_c - probe) * inverse + hi_e + 0.5 > 0)
    half = lo_e + ((hi_c - lo_c) * inverse + (hi_e - lo_e)) / 2
    half_c = lo_c + half * tau
    use_probe = within | (early & (known == 0))
    other_c = tl.where(use_probe, probe, half_c)
    other_e = tl.where(use_probe, -0.5, half - (half_c - lo_c) * inverse)
    # Newton steps alone may come from one side only: every third step halves what is left of the bracket.
    newton = ahead & (early | (step % 3 != 2))
    width = tl.where(ahead | known, width, 4 * width)
    done = settled == 1
    c = tl.where(done, c, tl.where(newton, next_c, other_c))
    e = tl.where(done, e, tl.where(newton, next_e, other_e))
    return c, e, lo_c, lo_e, hi_c, hi_e, width, size, settled


@triton.jit
def guess(x, k, n, tau, WIDE: tl.constexpr):
    """The threshold of a normal slice of the same mean and mean deviation, and how far to jump from it.

    Some slices need no search, every finite entry lies on one side: k of 0 and of n, more +inf than k, too many -inf.
    """
    dtype: tl.constexpr = x.dtype
    finite = (x > -INF) & (x < INF)
    share = 1 / tl.maximum(tl.sum(finite.to(tl.int32), 0), 1).to(dtype)
    mean = tl.sum(tl.where(finite, x, 0.0) * share[None, :], 0)
    off = tl.where(finite, tl.abs(x - mean[None, :]) * share[None, :], 0.0)
    # Of normal numbers sqrt(pi/2) mean deviations are one standard deviation, of even ones from 0 to tau a bit less.
    own, even = 1.2533 * tl.sum(off, 0), 0.2887 * tau
    ratio = tl.minimum(own, even) / tl.maximum(own, even)
    spread = tl.maximum(own, even) * tl.sqrt(1 + ratio * ratio)
    odds = tl.minimum((n - k).to(dtype) / tl.maximum(k.to(dtype), 1e-9), FAR)
    c = mean - tau / 2 + spread * (3 * (odds * odds - 1) / (odds * odds + 4 * odds + 1) / 1.702)
    width = tau + spread / 4
    top = largest(WIDE)
    usable = (tl.abs(c) < top) & (width < top)
    c = tl.where(usable, c, 0.0)
    low = (k >= n) | (k > tl.sum((x > -INF).to(tl.int32), 0).to(tl.float64))
    high = (k <= 0) | (k < tl.sum((x == INF).to(tl.int32), 0).to(tl.float64))
    c = tl.where(high, top, tl.where(low, -top, c))
    e = tl.where(high, 2.0, tl.where(low, -2.0, tl.zeros_like(c)))
    return c, e, tl.where(usable, width, 1.0)


@triton.jit
def middle(zero, one, tau):
    """Of all mu that leave nothing between 0 and 1: the middle, or the finite end if only one is finite."""
    both = zero + (one / 2 - zero / 2 - tau / 2)
    return tl.where(one == INF, tl.where(zero == -INF, 0.0, zero), tl.where(zero == -INF, one - tau, both))


@triton.jit
def is_flat(k, inside, active):
    """Whether nothing needs to lie between 0 and 1."""
    return (active == 0) | ((k == tl.floor(k)) & ((inside < 0.5) | (active - inside < 0.5)))


@triton.jit
def decided(k, n, given_tau, tau, c, e, inside, active, ones, zero, one, flat, WIDE: tl.constexpr):
    """mu: NaN for a bad slice, inf where infinite entries share k."""
    r = inside + ones - k
    crowded = (c >= largest(WIDE)) & (r > 0)
    valid = (k >= 0) & (k <= n) & (given_tau > 0) & (given_tau < INF)
    broken = (r != r) | (valid == 0) | ((c <= -largest(WIDE)) & (r < 0))
    settled_at = c.to(tl.float64) + e.to(tl.float64) * tau
    mu = tl.where(flat, middle(zero.to(tl.float64), one.to(tl.float64), given_tau), settled_at)
    return tl.where(broken, float("nan"), tl.where(crowded, INF, mu))


@triton.jit
def projected(x, share, tau, c, e, mu, flat):
    """The tile's y; NaN where mu is. `share` is y where infinite entries share k."""
    t = measured(x, c, e, tau)
    high = t > 0.5
    y = tl.where(flat[None, :], high.to(t.dtype), tl.where(t >= 1, 1.0, tl.where(t <= 0, 0.0, t)))
    y = tl.where((mu == INF)[None, :] & high, share[None, :], y)
    return tl.where((mu != mu)[None, :], float("nan"), y)


@triton.jit
def in_range(tau, WIDE: tl.constexpr):
    """tau such that tau and 1/tau are numbers of the dtype: beyond that y does not change any more."""
    low = 1.7800590868057611e-307 if WIDE else 9.4e-38
    high = 2.8e306 if WIDE else 5.3e36
    return tl.minimum(tl.maximum(tau, low), high)
