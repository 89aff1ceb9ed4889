# mypy: ignore-errors
# ruff: noqa: N803 (what Triton fixes at compile time is written in capitals)
"""The search for thresholds as device functions: one tile of slices, their entries along its first dim.

A threshold is a pair (c, e): mu = c + e tau, c a number of the array's dtype, so that (x - c)/tau - e keeps every
digit. What there is one of per slice is float64; what there is one of per entry has the array's dtype or float32.
"""

import triton
import triton.language as tl

NEWTON_STEPS = tl.constexpr(12)
MOST_STEPS = tl.constexpr(12 + 3 * 68)
INF = tl.constexpr(float("inf"))


@triton.jit
def measured(x, c, e, tau):
    """y before it is clipped."""
    dtype: tl.constexpr = x.dtype
    off = x - c.to(dtype)[None, :]
    if dtype == tl.float64:
        return off / tau[None, :] - e[None, :]
    else:  # in float32, / is an approximation
        return tl.math.div_rn(off, tl.zeros_like(off) + tau.to(dtype)[None, :]) - e.to(dtype)[None, :]


@triton.jit
def look(x, c, e, tau):
    """The entries strictly between 0 and 1 summed, how many there are, and how many entries are 1."""
    dtype: tl.constexpr = x.dtype
    t = (x - c.to(dtype)[None, :]) * (1 / tau).to(dtype)[None, :] - e.to(dtype)[None, :]
    inside = tl.where(t >= 1, 0.0, tl.where(t <= 0, 0.0, t))  # a NaN stays in the sum
    positive, ones = tl.sum((t > 0).to(tl.int32), 0), tl.sum((t >= 1).to(tl.int32), 0)
    return tl.sum(inside, 0).to(tl.float64), (positive - ones).to(tl.float64), ones.to(tl.float64)


@triton.jit
def ends(x, c, e, tau):
    """The largest finite entry nearer to 0 than to 1, and the smallest nearer to 1: of use where none is between."""
    high, finite = measured(x, c, e, tau) > 0.5, (x > -INF) & (x < INF)
    zero = tl.max(tl.where(finite & (high == 0), x, -INF), 0)
    one = tl.min(tl.where(finite & high, x, INF), 0)
    return zero.to(tl.float64), one.to(tl.float64)


@triton.jit
def number_to_key(x, WIDE: tl.constexpr):
    """Integers in the order of the numbers."""
    if WIDE:
        raw = x.to(tl.int64, bitcast=True)
        return tl.where(raw < 0, raw ^ 0x7FFFFFFFFFFFFFFF, raw)
    else:
        raw = x.to(tl.float32).to(tl.int32, bitcast=True)
        return tl.where(raw < 0, raw ^ 0x7FFFFFFF, raw)


@triton.jit
def between(lo, hi, WIDE: tl.constexpr):
    """The number in the middle of all floating-point numbers from lo to hi, rounded up."""
    a, b = number_to_key(lo, WIDE), number_to_key(hi, WIDE)
    key = (a & b) + ((a ^ b) >> 1) + ((a ^ b) & 1)
    if WIDE:
        return tl.where(key < 0, key ^ 0x7FFFFFFFFFFFFFFF, key).to(tl.float64, bitcast=True)
    else:
        return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
def rounded(c, WIDE: tl.constexpr):
    return c if WIDE else c.to(tl.float32).to(tl.float64)


@triton.jit
def largest(WIDE: tl.constexpr):
    return 1.7976931348623157e308 if WIDE else 3.4028234663852886e38


@triton.jit
def newton_step(inside, active, ones, k, n):
    """In units of tau; far away on log f, since a tail is closer to an exponential than to a line."""
    total = inside + ones
    small = 2 * k <= n
    part, wanted = tl.where(small, total, n - total), tl.where(small, k, n - k)
    q = part / tl.where(wanted == 0, 1.0, wanted)
    far = 3 * (q * q - 1) / (q * q + 4 * q + 1) * part
    rise = tl.where(tl.abs(q - 1) < 0.25, total - k, tl.where(small, far, -far))
    return rise / tl.maximum(active, 1.0)


@triton.jit
def advance(
    inside, active, ones, k, n, tau, step, c, e, lo_c, lo_e, hi_c, hi_e, width, last, settled, WIDE: tl.constexpr
):
    """One safeguarded Newton step for every slice; a slice that is settled stays where it is."""
    eps = 2.220446049250313e-16 if WIDE else 1.1920928955078125e-07
    top = largest(WIDE)
    r = inside + ones - k
    size = tl.abs(r)
    stalled = (size <= 16 * eps * active) & (size > last / 2)
    fine = tl.where(active == 0, size == 0, (size <= 0.25 * eps * active) | stalled)
    beyond = ((c >= top) & (r > 0)) | ((c <= -top) & (r < 0))
    settled = tl.where(fine | beyond | (r != r), 1, settled)

    up = r > 0
    lo_c, lo_e = tl.where(up, c, lo_c), tl.where(up, e, lo_e)
    hi_c, hi_e = tl.where(up, hi_c, c), tl.where(up, hi_e, e)
    moved = e + newton_step(inside, active, ones, k, n)
    next_c = rounded(c + moved * tau, WIDE)
    next_e = moved - (next_c - c) / tau
    # Not to the end that was seen before: its own step may well lead back here, and so forever.
    after, before = (next_c - lo_c) / tau + (next_e - lo_e), (hi_c - next_c) / tau + (hi_e - next_e)
    ahead = (active > 0) & (tl.where(up, before, after) > 0)
    known = (lo_c > -top) & (hi_c < top)
    early = step < NEWTON_STEPS
    jump = rounded(tl.minimum(tl.maximum(c + tl.where(up, width, -width), -top), top), WIDE)
    jump = tl.where(tl.abs(c) < top, jump, 0.0)  # a sample's infinite entries may mislead
    probe = tl.where(known, rounded(lo_c / 2 + hi_c / 2, WIDE), jump)
    probe = tl.where(early, probe, between(lo_c, hi_c, WIDE))
    # Half a tau below a number, the entries equal to it are active.
    within = ((probe - lo_c) / tau - 0.5 - lo_e > 0) & ((hi_c - probe) / tau + hi_e + 0.5 > 0)
    half = lo_e + ((hi_c - lo_c) / tau + (hi_e - lo_e)) / 2
    half_c = rounded(lo_c + half * tau, WIDE)
    use_probe = within | (early & (known == 0))
    other_c = tl.where(use_probe, probe, half_c)
    other_e = tl.where(use_probe, -0.5, half - (half_c - lo_c) / tau)
    # Newton steps alone may come from one side only: every third step halves what is left of the bracket.
    newton = ahead & (early | (step % 3 != 2))
    width = tl.where(ahead | known, width, 4 * width)
    done = settled == 1
    c = tl.where(done, c, tl.where(newton, next_c, other_c))
    e = tl.where(done, e, tl.where(newton, next_e, other_e))
    return c, e, lo_c, lo_e, hi_c, hi_e, width, size, settled


@triton.jit
def guess(x, k, n, tau, WIDE: tl.constexpr):
    """The threshold of a normal slice of the same mean and variance, and how far to jump from it.

    Some slices need no search, every finite entry lies on one side: k of 0 and of n, more +inf than k, too many -inf.
    """
    finite = (x > -INF) & (x < INF)
    count = tl.maximum(tl.sum(finite.to(tl.int32), 0), 1).to(tl.float64)
    z = tl.where(finite, x, 0.0)
    mean = tl.sum(z.to(tl.float64) / count[None, :], 0)
    off = tl.where(finite, z.to(tl.float64) - mean[None, :], 0.0)
    variance = tl.sum(off * off / count[None, :], 0)
    odds = (n - k) / tl.where(k == 0, 1.0, k)
    spread = tl.sqrt(variance + tau * tau / 12)
    c = mean - tau / 2 + spread * (3 * (odds * odds - 1) / (odds * odds + 4 * odds + 1) / 1.702)
    width = tau + spread / 4
    top = largest(WIDE)
    usable = (tl.abs(c) < top) & (width < top)
    c = rounded(tl.where(usable, c, 0.0), WIDE)
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
def decided(k, n, given_tau, tau, c, e, inside, active, ones, zero, one, WIDE: tl.constexpr):
    """mu, and whether no entry is active; mu is NaN for a bad slice, inf where infinite entries share k."""
    r = inside + ones - k
    flat = (active == 0) | ((k == tl.floor(k)) & ((inside < 0.5) | (active - inside < 0.5)))
    crowded = (c >= largest(WIDE)) & (r > 0)
    valid = (k >= 0) & (k <= n) & (given_tau > 0) & (given_tau < INF)
    broken = (r != r) | (valid == 0) | ((c <= -largest(WIDE)) & (r < 0))
    mu = tl.where(crowded, INF, tl.where(flat, middle(zero, one, given_tau), c + e * tau))
    return tl.where(broken, float("nan"), mu), flat


@triton.jit
def projected(x, k, tau, c, e, ones, mu, flat):
    """The tile's y; NaN where mu is."""
    t = measured(x, c, e, tau)
    high = t > 0.5
    y = tl.where(flat[None, :], high.to(t.dtype), tl.where(t >= 1, 1.0, tl.where(t <= 0, 0.0, t)))
    share = (k / tl.maximum(ones, 1.0)).to(t.dtype)
    y = tl.where((mu == INF)[None, :] & high, share[None, :], y)
    return tl.where((mu != mu)[None, :], float("nan"), y)


@triton.jit
def in_range(tau, WIDE: tl.constexpr):
    """tau such that tau and 1/tau are numbers of the dtype: beyond that y does not change any more."""
    low = 1.7800590868057611e-307 if WIDE else 9.4e-38
    high = 2.8e306 if WIDE else 5.3e36
    return tl.minimum(tl.maximum(tau, low), high)
