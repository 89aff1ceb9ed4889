"""The curves: how an entry's share rises from 0 to 1 as the entry passes the threshold.

A slice is y = S((x - mu)/tau), with mu such that y sums to k. A curve is known by its name and its index in CURVES.
Everything here is written in array expressions: `xp` is NumPy, torch or jax.numpy, and t and y are its arrays. The
functions can be differentiated by torch and by JAX, at every t but the kinks of the curve.
"""

from typing import Any

CURVES = ("ramp", "exp", "logistic", "laplace")

Array = Any  # of NumPy, of torch or of JAX


def parts(xp: Any, curve: str, t: Array) -> tuple[Array, Array, Array]:
    """S(t) less 1 where the last part holds, the slope of S at t, and where S(t) is counted from 1 down.

    A sum of many numbers close to 1 would lose the digits that tell them from 1, so those are counted apart.
    """
    if curve == "ramp":
        ones = t >= 1
        return xp.where((t <= 0) | ones, 0.0, t), (t > 0) & (t < 1), ones  # a NaN stays in the sum
    above = t >= 0
    if curve == "exp":
        rest = xp.where(above, 0.0, xp.exp(xp.where(above, -1.0, t)))
        return rest, rest, above
    e = xp.exp(xp.where(above, -t, t))
    if curve == "logistic":
        below = e / (1 + e)
        return xp.where(above, -below, below), below / (1 + e), above
    return xp.where(above, -e, e) / 2, e / 2, above


def value(xp: Any, curve: str, t: Array) -> Array:
    """S(t)."""
    rest, _, above = parts(xp, curve, t)
    return xp.where(above, 1 + rest, rest)


def slope(xp: Any, curve: str, y: Array) -> Array:
    """The slope of S where it is y. It is NaN where y is NaN."""
    if curve == "ramp":
        return xp.where((y > 0) & (y < 1), 1.0, 0 * y)
    if curve == "exp":
        return xp.where(y >= 1, 0.0, y)
    return y * (1 - y) if curve == "logistic" else xp.where(y > 0.5, 1 - y, y)


def inverse(xp: Any, curve: str, y: Array) -> Array:
    """The t at which S is y, for 0 < y < 1. An exponential needs no end: at 0 it is -inf, and the mirrored curves'
    is +inf at 1."""
    if curve == "ramp":
        return y
    if curve == "exp":
        return xp.log(y)
    if curve == "logistic":
        return xp.log(y) - xp.log1p(-y)
    low = y < 0.5
    return xp.where(low, xp.log(2 * xp.where(low, y, 0.5)), -xp.log(2 * (1 - xp.where(low, 0.5, y))))
