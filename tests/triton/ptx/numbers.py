"""Arithmetic of the ISA that NumPy lacks: fused multiply-add, conversions, the order of numbers, approximations.

NumPy's +, -, *, / and sqrt of float32 and float64 round to nearest, ties to even, as the ISA's do. The payload of a NaN
is not modeled.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
U8, U16, U32, U64 = (np.dtype(f"u{size}") for size in (1, 2, 4, 8))
S8, S16, S32, S64 = (np.dtype(f"i{size}") for size in (1, 2, 4, 8))
BOOL = np.dtype(bool)
UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b rounded, and what rounding left over, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b rounded to odd: of the two neighbors of an inexact sum the one whose last bit is 1.

    Rounding that once more, to at most 51 bits, gives what rounding the exact sum gives (Boldo and Melquiond).
    """
    total, rest = two_sum(a, b)
    wrong = (rest != 0) & np.isfinite(total) & (total.view(S64) & 1 == 0)
    if not wrong.any():
        return total
    return np.where(wrong, np.nextafter(total, np.where(rest > 0, np.inf, -np.inf)), total)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once: the product of two float32 is exact in float64, and the sum is rounded to odd there."""
    return sum_to_odd(*np.broadcast_arrays(a.astype(F64) * b.astype(F64), c.astype(F64))).astype(F32)


def _halves(a: Array) -> tuple[Array, Array]:
    """a as the sum of two numbers of 26 bits (Veltkamp)."""
    far = a * 134217729.0
    high = far - (far - a)
    return high, a - high


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once, by the algorithm of Boldo and Melquiond; at extreme exponents by fractions."""
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    simple = product + c
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    rest = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
    high, low = two_sum(c, rest)
    top, bottom = two_sum(product, high)
    found = top + sum_to_odd(bottom, low)
    plain = (a == 0) | (b == 0) | ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    found = np.where(plain, np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, simple), found)
    large = np.maximum(np.maximum(abs(a), abs(b)), np.maximum(abs(product), abs(c)))
    extreme = ~plain & ((large > 2.0**990) | (abs(product) < 2.0**-900))
    for i in np.flatnonzero(extreme):
        found[i] = _rounded(Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i])), float(simple[i]))
    return found


def _rounded(exact: Fraction, sign: float) -> float:
    if not exact:
        return sign if sign == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def least(a: Array, b: Array) -> Array:
    """The smaller number: -0 is less than +0, and a NaN is none."""
    bits = UNSIGNED[8 * a.dtype.itemsize]
    same = np.bitwise_or(a.view(bits), b.view(bits)).view(a.dtype)
    return np.where(a == b, same, np.fmin(a, b))


def greatest(a: Array, b: Array) -> Array:
    bits = UNSIGNED[8 * a.dtype.itemsize]
    same = np.bitwise_and(a.view(bits), b.view(bits)).view(a.dtype)
    return np.where(a == b, same, np.fmax(a, b))


def with_nan(choose: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The same, but NaN where either is."""
    return lambda a, b: np.where((a != a) | (b != b), a.dtype.type(np.nan), choose(a, b))


def from_bfloat16(bits: Array) -> Array:
    return (bits.astype(U32) << np.uint32(16)).view(F32)


def to_bfloat16(x: Array) -> Array:
    """To nearest, ties to even; every NaN becomes the canonical one."""
    bits = x.view(U32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(x != x, np.uint32(0x7FFF), rounded).astype(U16)


ROUND_TO_WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def to_integer(x: Array, dtype: np.dtype, rounding: str) -> Array:
    """Saturated. NaN gives 0 between formats of at most 32 bits, else the largest power of two."""
    whole = ROUND_TO_WHOLE[rounding](x.astype(F64))
    limits = np.iinfo(dtype)
    inside = (whole >= float(limits.min)) & (whole < float(limits.max) + (1 if limits.bits <= 32 else 0))
    found = np.where(inside, whole, 0).astype(dtype)
    found = np.where(whole >= float(limits.max), dtype.type(limits.max), found)
    found = np.where(whole < float(limits.min), dtype.type(limits.min), found)
    narrow = x.dtype != F64 and limits.bits <= 32
    bits = np.array(0 if narrow else 1 << (limits.bits - 1), UNSIGNED[limits.bits])
    return np.where(x != x, bits.view(dtype), found)


def moved_by(ulps: int, exact: Array) -> Array:
    """An approximation in float32 as far from the exact value, given in float64, as the ISA allows, up or down.

    Results that float32 holds exactly stay. The direction depends on the bits, so that nothing can rely on it.
    """
    near = exact.astype(F32)
    bits = near.view(U32)
    up = ((bits * np.uint32(2654435761)) >> np.uint32(31)) == 1
    moved = near
    for _ in range(ulps):
        moved = np.nextafter(moved, np.where(up, np.inf, -np.inf).astype(F32))
    return np.where((near.astype(F64) == exact) | ~np.isfinite(near) | (near == 0), near, moved)


def flushed(x: Array) -> Array:
    """A float32 below the normal ones becomes 0 of its sign."""
    return np.where(abs(x) < np.finfo(F32).tiny, np.copysign(np.float32(0), x), x)


def high_product(a: Array, b: Array) -> Array:
    """The upper half of the product, in the dtype of the factors."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = S64 if a.dtype.kind == "i" else U64
        return (a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(a.dtype)
    whole = [int(x) * int(y) >> 64 for x, y in zip(*np.broadcast_arrays(a, b), strict=True)]
    return np.array(whole, a.dtype)


def quotient(a: Array, b: Array) -> Array:
    """Toward zero; all ones where the divisor is 0."""
    return np.where(b == 0, np.array(-1).astype(a.dtype), _toward_zero(a, np.where(b == 0, a.dtype.type(1), b)))


def _toward_zero(a: Array, b: Array) -> Array:
    below = a // b
    if a.dtype.kind == "u":
        return below
    return below + ((below * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _toward_zero(a, np.where(b == 0, a.dtype.type(1), b)) * b)


def shifted_left(a: Array, by: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    return np.where(by >= bits, a.dtype.type(0), a << np.minimum(by, bits - 1).astype(a.dtype))


def shifted_right(a: Array, by: Array) -> Array:
    """With the sign for signed numbers; a shift by more than all bits is one by all of them."""
    bits = 8 * a.dtype.itemsize
    near = a >> np.minimum(by, bits - 1).astype(a.dtype)
    return near if a.dtype.kind == "i" else np.where(by >= bits, a.dtype.type(0), near)


def bit_count(a: Array) -> Array:
    return np.bitwise_count(a).astype(U32)
