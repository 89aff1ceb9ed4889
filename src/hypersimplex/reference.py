"""Soft-Binary-Argmax@k, slow and obviously right: the yardstick of the tests and the docs.

Everything is float64; nothing is optimized. `_project` is the whole algorithm for the ramp, on one vector, and
`_bisect` that for every other curve; the public functions only peel axis and broadcasting off around them. Product code
never imports this module.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypersimplex import _checks

Array: TypeAlias = NDArray[np.float64]

__all__ = ["binary_argmax", "soft_binary_argmax", "threshold", "vjp"]


def _project(x: Array, k: float, tau: float) -> tuple[Array, float]:
    """Return y = clip((x - mu)/tau, 0, 1) and mu, with mu such that y sums to k."""
    if np.isnan(x).any():
        return np.full_like(x, np.nan), np.nan
    _check_masks(x, k)
    infinite = np.sum(np.isposinf(x))
    if infinite > k:
        return np.where(np.isposinf(x), k / infinite, 0.0), np.inf

    largest = np.concatenate([[np.inf], np.sort(x)[::-1], [-np.inf]])  # largest[j] is the j-th largest
    if k == int(k) and largest[int(k)] - largest[int(k) + 1] >= tau:
        # A gap of tau or more below the k-th largest: k ones, the rest zeros, any mu inside the gap will do.
        above = largest[int(k)]
        ends = [end for end in (above - tau, largest[int(k) + 1]) if np.isfinite(end)]
        return (x >= above).astype(np.float64), sum(end / len(ends) for end in ends)

    # Now the ceil(k)-th largest has 0 < y < 1: with 0 the sum would stay below k, with 1 it would exceed k or
    # leave the gap above. So mu is within tau of it. Measuring from there keeps every digit when x is 1e6 and
    # tau is 1e-3; what is more than tau away is 0 or 1 for certain and may be clipped, infinities included.
    origin = largest[math.ceil(k)]
    z = np.clip((x - origin) / tau, -1.0, 1.0)

    # sum(clip(z - nu, 0, 1)) falls with nu, linear between the breakpoints z and z - 1: find k there.
    breakpoints = np.unique(np.concatenate([z, z - 1.0]))
    left, right = 0, breakpoints.size - 1
    while right - left > 1:
        middle = (left + right) // 2
        if np.clip(z - breakpoints[middle], 0.0, 1.0).sum() >= k:
            left = middle
        else:
            right = middle
    ones = z - 1.0 >= breakpoints[right]
    active = (z >= breakpoints[right]) & ~ones
    nu = (z[active].sum() - (k - ones.sum())) / active.sum()
    return np.clip(z - nu, 0.0, 1.0), origin + tau * nu


def _rest(curve: str, t: Array) -> Array:
    """S(t) where t < 0, and S(t) - 1 above; the mirrored curves have the same digits on both sides."""
    e = np.exp(-np.abs(t))
    if curve == "exp":
        return np.where(t < 0, e, 0.0)
    return np.where(t < 0, 1, -1) * (e / (1 + e) if curve == "logistic" else e / 2)


def _bisect(x: Array, k: float, tau: float, curve: str) -> tuple[Array, float]:
    """Return y = S((x - mu)/tau) and mu, with mu such that y sums to k."""
    if np.isnan(x).any():
        return np.full_like(x, np.nan), np.nan
    _check_masks(x, k)
    infinite, finite = np.isposinf(x), np.isfinite(x)
    rest = k - infinite.sum()
    if rest <= 0:
        return np.where(infinite, k / max(infinite.sum(), k) if k else 0.0, 0.0), np.inf
    if rest == finite.sum():
        return np.where(x > -np.inf, 1.0, 0.0), x[finite].min() if curve == "exp" and rest else -np.inf
    origin = np.sort(x)[::-1][math.ceil(k) - 1]
    z = (x[finite] - origin) / tau
    bounds = z.min() - 800 + math.log(rest / x.size), z.max() + 800 - math.log(rest / x.size)

    def turn(is_low: Callable[[float], bool]) -> float:
        low, high = bounds
        while low < (middle := low / 2 + high / 2) < high:
            low, high = (middle, high) if is_low(middle) else (low, middle)
        return float(low / 2 + high / 2)

    def excess(nu: float) -> float:
        return float(_rest(curve, z - nu).sum() - (rest - (z >= nu).sum()))

    # Far from all entries the sum is k over an interval, as nearly as numbers can tell. exp ends it where y reaches 1.
    last = turn(lambda nu: excess(nu) >= 0)
    nu = last if curve == "exp" else turn(lambda nu: excess(nu) > 0) / 2 + last / 2
    t = np.where(finite, x - origin, x) / tau - nu
    return np.where(t < 0, 0.0, 1.0) + _rest(curve, t), origin + tau * nu


def soft_binary_argmax(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike = 1.0, *, axis: int = -1, curve: str = "ramp"
) -> Array:
    """Return y = S((x - mu)/tau) with sum k for every slice of x along axis; S is the curve of `soft_topk`.

    For the ramp that is argmin_y |y - x/tau|^2 over 0 <= y <= 1, sum(y) = k. k and tau are numbers, or arrays that
    broadcast over the slices.

    >>> soft_binary_argmax([0.1, 1.6, 1.0], 1)
    array([0. , 0.8, 0.2])
    >>> soft_binary_argmax([0.1, 1.6, 1.0], 1, tau=0.5)
    array([0., 1., 0.])
    """
    return _solve(x, k, tau, axis, curve)[0]


def threshold(x: ArrayLike, k: ArrayLike, tau: ArrayLike = 1.0, *, axis: int = -1, curve: str = "ramp") -> Array:
    """Return mu, one number for each slice, such that S((x - mu)/tau) sums to k.

    If every number of an interval would do, mu is the middle, or the finite end if only one end is finite.

    >>> threshold([0.1, 1.6, 1.0], 1)
    array(0.8)
    """
    return _solve(x, k, tau, axis, curve)[1]


def binary_argmax(x: ArrayLike, k: ArrayLike, *, axis: int = -1) -> Array:
    """Mark the k largest entries of every slice with 1 and the others with 0. Ties go to the lower index.

    >>> binary_argmax([3.0, 5.0, 3.0], 2)
    array([1., 1., 0.])
    """
    rows, ks, _ = _slices(x, k, 1.0, axis)
    y = np.zeros(rows.shape)
    for i in np.ndindex(rows.shape[:-1]):
        if ks[i] != int(ks[i]):
            raise ValueError(f"k must be a whole number for exactly k ones, got {ks[i]:g}")
        _check_masks(rows[i], float(ks[i]))
        y[i][np.argsort(-rows[i], kind="stable")[: int(ks[i])]] = 1.0
        if np.isnan(rows[i]).any():
            y[i] = np.nan
    return np.moveaxis(y, -1, axis)


def vjp(y: ArrayLike, v: ArrayLike, tau: ArrayLike = 1.0, *, axis: int = -1) -> tuple[Array, Array, Array]:
    """Return the gradients of sum(v * y) to x, k and tau, for y = soft_binary_argmax(x, k, tau).

    Let A be the entries strictly between 0 and 1. The gradients of a slice are

        x:    (v - mean_A v)/tau on A, 0 elsewhere     k:  mean_A v     tau:  -1/tau sum_A v (y - mean_A y)

    They are zero if A is empty.

    >>> vjp([0.0, 0.75, 0.25], [1.0, 2.0, 3.0])
    (array([ 0. , -0.5,  0.5]), array(2.5), array(0.25))
    """
    rows = np.moveaxis(np.asarray(y, np.float64), axis, -1)
    vs = np.moveaxis(np.broadcast_to(np.asarray(v, np.float64), np.shape(y)), axis, -1)
    taus = np.broadcast_to(np.asarray(tau, np.float64), rows.shape[:-1])
    to_x, to_k, to_tau = np.zeros(rows.shape), np.zeros(rows.shape[:-1]), np.zeros(rows.shape[:-1])
    for i in np.ndindex(rows.shape[:-1]):
        active = (rows[i] > 0.0) & (rows[i] < 1.0)
        if np.isnan(rows[i]).any():
            to_x[i], to_k[i], to_tau[i] = np.nan, np.nan, np.nan
        elif active.any():
            va, ya = vs[i][active], rows[i][active]
            to_x[i][active] = (va - va.mean()) / taus[i]
            to_k[i] = va.mean()
            to_tau[i] = -np.sum(va * (ya - ya.mean())) / taus[i]
    return np.moveaxis(to_x, -1, axis), to_k, to_tau


def _solve(x: ArrayLike, k: ArrayLike, tau: ArrayLike, axis: int, curve: str) -> tuple[Array, Array]:
    _checks.check_curve(curve)
    rows, ks, taus = _slices(x, k, tau, axis)
    y, mu = np.zeros(rows.shape), np.zeros(rows.shape[:-1])
    with np.errstate(over="ignore", invalid="ignore"):
        for i in np.ndindex(rows.shape[:-1]):
            problem = rows[i], float(ks[i]), float(taus[i])
            y[i], mu[i] = _project(*problem) if curve == "ramp" else _bisect(*problem, curve)
    return np.moveaxis(y, -1, axis), mu


def _check_masks(x: Array, k: float) -> None:
    """Entries of -inf are never chosen; a slice with a NaN takes any k, since it is NaN anyway."""
    usable = x.size - np.sum(np.isneginf(x))
    if k > usable and not np.isnan(x).any():
        raise ValueError(f"k must be at most {usable}, the number of entries that are not -inf, got {k:g}")


def _slices(x: ArrayLike, k: ArrayLike, tau: ArrayLike, axis: int) -> tuple[Array, Array, Array]:
    """Bring axis last; give every slice its own k and tau."""
    rows = np.moveaxis(np.asarray(x, np.float64), axis, -1)
    ks = np.broadcast_to(np.asarray(k, np.float64), rows.shape[:-1])
    taus = np.broadcast_to(np.asarray(tau, np.float64), rows.shape[:-1])
    n = rows.shape[-1]
    for bad in ks[~((ks >= 0) & (ks <= n))]:
        raise ValueError(f"k must be between 0 and {n} (the size of axis {axis}), got {bad:g}")
    for bad in taus[~((taus > 0) & np.isfinite(taus))]:
        raise ValueError(f"tau must be positive and finite, got {bad:g}")
    return rows, ks, taus
