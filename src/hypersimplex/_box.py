"""Box sections for NumPy: axes, dtypes and broadcasting peeled off around the kernel."""

import math
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from hypersimplex import _checks, _kernel
from hypersimplex._numpy import Array, as_numbers, per_slice, prepare, threads


def box_section(
    x: ArrayLike,
    total: ArrayLike,
    lower: ArrayLike = 0.0,
    upper: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    tau: ArrayLike = 1.0,
    *,
    axis: SupportsIndex = -1,
    at_most: bool = False,
) -> Array:
    """Solve argmin |y - x/tau|^2 over lower <= y <= upper, sum(weight * y) = total, for every slice of x along axis.

    The solution is y = clip(x/tau - nu * weight, lower, upper) with one number nu per slice. Bounds that cannot meet
    the total raise an error.

    Args:
        x: floating-point array. float16 and bfloat16 are computed in float32 and returned in their own dtype.
        total: what every slice sums to: a number, or an array that broadcasts over the slices.
        lower, upper: bounds, possibly infinite: numbers, or arrays that broadcast to x's shape.
        weight: positive: a number, or an array that broadcasts to x's shape. None means 1.
        tau: temperature, positive: a number, or an array that broadcasts over the slices.
        axis: the axis along which the slices lie.
        at_most: allow a sum below the total.

    >>> x = np.array([0.1, 1.6, 1.0])
    >>> box_section(x, total=1.5, upper=0.75)
    array([0.  , 0.75, 0.75])
    >>> box_section(x, total=2.0, upper=np.inf, weight=[1.0, 1.0, 2.0])
    array([0.  , 1.28, 0.36])
    >>> box_section(x, total=9.0, at_most=True)
    array([0.1, 1. , 1. ])
    """
    array, dtype, along = prepare(x, axis)
    shape = (*array.shape[:along], *array.shape[along + 1 :], array.shape[along])
    rows = np.ascontiguousarray(np.moveaxis(array, along, -1)).reshape(math.prod(shape[:-1]), shape[-1])
    numbers: dict[str, Any] = {
        "total": _over_rows("total", total, shape[:-1]),
        "tau": _over_rows("tau", tau, shape[:-1]),
        "lower": _over_entries("lower", lower, array, along),
        "upper": _over_entries("upper", upper, array, along),
        "weight": _over_entries("weight", 1.0 if weight is None else weight, array, along),
    }
    y, mu = np.empty_like(rows), np.empty(len(rows))
    failure = _kernel.box(rows, y, mu, **numbers, at_most=at_most, threads=threads())
    if failure:
        _checks.raise_box_failure(failure, rows, at_most, **numbers)
    return np.moveaxis(y.reshape(shape), -1, along).astype(dtype, copy=False)


def _over_rows(name: str, value: ArrayLike, slices: tuple[int, ...]) -> Array:
    number, array = per_slice(name, value, slices)
    return np.full(math.prod(slices), number) if array is None else array.reshape(-1)


def _over_entries(name: str, value: ArrayLike, x: Array, along: int) -> Array:
    """Numbers for the entries of rows as the kernel takes them: rows or 1 of them, entries or 1 of them."""
    shape, array = x.shape, as_numbers(name, value)
    if array.ndim == 0:
        return array.astype(np.float64).reshape(1, 1)
    if not _checks.fits(array.shape, shape):
        raise _checks.not_over_entries(name, shape, array.shape)
    array = np.moveaxis(array.reshape((1,) * (len(shape) - array.ndim) + array.shape), along, -1)
    rows = tuple(size for d, size in enumerate(shape) if d != along)
    if any(size != 1 for size in array.shape[:-1]):
        array = np.broadcast_to(array, (*rows, array.shape[-1]))
    dtype = np.float32 if array.dtype == x.dtype == np.float32 else np.float64
    return np.ascontiguousarray(array.reshape(math.prod(array.shape[:-1]), array.shape[-1]), dtype=dtype)
