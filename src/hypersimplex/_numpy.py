"""The NumPy front end: axes, dtypes and broadcasting peeled off around the kernel."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypersimplex import _checks, _kernel
from hypersimplex._curves import CURVES

if os.environ.get("HYPERSIMPLEX_SIMD", _kernel.variant()) not in ("", _kernel.variant()):
    raise ValueError(
        "HYPERSIMPLEX_SIMD must be baseline, avx2 or avx512, and one that this processor runs, "
        f"got {os.environ['HYPERSIMPLEX_SIMD']!r}"
    )

Array = NDArray[Any]

BFLOAT16 = "bfloat16"  # NumPy has none of its own; ml_dtypes registers one under that name
MOST_THREADS = 1024  # the kernel takes fewer still


def soft_topk(
    x: ArrayLike,
    k: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    axis: SupportsIndex = -1,
    curve: str = "ramp",
    hard: bool = False,
) -> Array:
    """Choose the k largest entries of every slice along axis, softly: y from 0 to 1 with sum k.

    `soft_binary_argmax` is the same function under the name that the paper gives it for the default curve.

    y equals S((x - mu)/tau) with one number mu per slice. `curve` names S, which rises from 0 to 1:

        "ramp"      clip(t, 0, 1). y has exact zeros and ones; at k=1 it is sparsemax. It solves
                    argmin |y - x/tau|^2 over 0 <= y <= 1, sum(y) = k.
        "exp"       min(1, e^t). At k=1 it is softmax.
        "logistic"  1/(1 + e^-t). No entry is exactly 0 or 1; known as LML.
        "laplace"   e^t/2 below 0, 1 - e^-t/2 above. No entry is exactly 0 or 1; known as LapSum.

    Args:
        x: floating-point array. float16 and bfloat16 are computed in float32 and returned in their own dtype.
        k: the sum of every slice, any real number from 0 to its size; or an array that broadcasts over the slices.
        tau: temperature, positive; or an array that broadcasts over the slices. A smaller one makes y harder.
        axis: the axis along which the slices lie.
        curve: "ramp", "exp", "logistic" or "laplace".
        hard: return exactly k ones instead, as binary_argmax does; k must be whole.

    >>> x = np.array([0.1, 1.6, 1.0])
    >>> soft_topk(x, k=1)
    array([0. , 0.8, 0.2])
    >>> soft_topk(np.stack([x, x]), k=[1, 2], tau=2.0)
    array([[0.   , 0.65 , 0.35 ],
           [0.275, 1.   , 0.725]])
    >>> soft_topk(x, k=1, hard=True)
    array([0., 1., 0.])
    >>> soft_topk(x, k=2, curve="exp").round(4)
    array([0.2891, 1.    , 0.7109])
    """
    _checks.check_curve(curve)
    x, dtype, along = prepare(x, axis)
    y = np.empty_like(x)
    _project(x, k, tau, along, axis, y, None, curve)
    if hard:
        y = binary_argmax(x, k, axis=axis)
    return y if y.dtype == dtype else y.astype(dtype)


soft_binary_argmax = soft_topk  # under the paper's name


def threshold(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike = 1.0, *, axis: SupportsIndex = -1, curve: str = "ramp"
) -> Array:
    """Return mu, one number for each slice, such that S((x - mu)/tau) sums to k; S is the curve of soft_topk.

    If every number of an interval would do, mu is the middle, or the finite end if only one end is finite. Where no
    finite number would do it is infinite.

    >>> threshold(np.array([0.1, 1.6, 1.0]), k=1)
    array(0.8)
    """
    _checks.check_curve(curve)
    x, _, along = prepare(x, axis)
    mu = np.empty(x.shape[:along] + x.shape[along + 1 :])
    _project(x, k, tau, along, axis, None, mu, curve)
    return mu.astype(x.dtype, copy=False)


def binary_argmax(x: ArrayLike, k: ArrayLike, *, axis: SupportsIndex = -1) -> Array:
    """Return exactly k ones, at the largest entries of every slice, and zeros elsewhere.

    Of equal entries the one with the lower index is chosen.

    >>> binary_argmax(np.array([0.1, 1.6, 1.0, 1.0]), k=2)
    array([0., 1., 1., 0.])
    """
    x, dtype, along = prepare(x, axis)
    y = np.empty_like(x)
    slices = x.shape[:along] + x.shape[along + 1 :]
    k_number, k_array = per_slice("k", k, slices)
    failure = _kernel.binary(x, k_number, y, k_array, along, threads())
    if failure:
        _checks.raise_failure(failure, k_number if k_array is None else k_array, 1.0, x.shape[along], f"axis {axis}")
    return y if y.dtype == dtype else y.astype(dtype)


def soft_topk_segments(
    x: ArrayLike, k: ArrayLike, offsets: ArrayLike, tau: ArrayLike = 1.0, *, curve: str = "ramp"
) -> Array:
    """Compute soft_topk of every segment x[offsets[i]:offsets[i + 1]], for rows of different lengths.

    The result is that of soft_topk for each segment by itself, or for rows padded with -inf.

    Args:
        x: floating-point array of one dimension.
        k: the sum of every segment, from 0 to its size: a number, or one per segment.
        offsets: whole numbers that rise from 0 to the size of x, one more than there are segments.
        tau: temperature, positive: a number, or one per segment.
        curve: "ramp", "exp", "logistic" or "laplace", as for soft_topk.

    >>> x = np.array([0.1, 1.6, 1.0, 2.0, 2.5])
    >>> soft_topk_segments(x, k=1, offsets=[0, 3, 5])
    array([0.  , 0.8 , 0.2 , 0.25, 0.75])
    """
    _checks.check_curve(curve)
    x, dtype, _ = prepare(x, -1)
    _checks.check_flat("x", x.shape)
    ends = as_array("offsets", offsets)
    _checks.check_offsets(ends.shape, ends.dtype.kind in "iu", ends.dtype)
    ends = np.ascontiguousarray(ends, dtype=np.int64)
    slices = (len(ends) - 1,)
    k, ks = per_slice("k", k, slices)
    tau, taus = per_slice("tau", tau, slices)
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    failure = _kernel.segments(x, ends, k, tau, y=y, ks=ks, taus=taus, threads=threads(), curve=CURVES.index(curve))
    if failure:
        n = 0 if failure[0] == "offsets" else int(np.diff(ends)[failure[1]])
        k, tau = k if ks is None else ks, tau if taus is None else taus
        _checks.raise_segment_failure(failure, k, tau, x.size, n)
    return y.astype(dtype, copy=False)


def threads() -> int:
    """The number of threads the kernel may use: HYPERSIMPLEX_NUM_THREADS, or one for each processor."""
    wanted = os.environ.get("HYPERSIMPLEX_NUM_THREADS")
    if wanted is None:
        return _processors()
    if not wanted.isdecimal() or int(wanted) < 1:
        raise ValueError(f"HYPERSIMPLEX_NUM_THREADS must be a positive whole number, got {wanted!r}")
    return min(int(wanted), MOST_THREADS)


@cache
def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare(x: ArrayLike, axis: SupportsIndex) -> tuple[Array, np.dtype[Any], int]:
    """x as the kernel takes it, the dtype to return, and axis as a non-negative number."""
    array: Array = as_array("x", x)
    dtype = array.dtype
    along = _checks.check_dim("axis", axis, array.ndim)
    if dtype.kind != "f" and dtype.name != BFLOAT16:
        raise _checks.not_floating("x", dtype)
    if dtype != np.float32 and dtype != np.float64:  # nor of the other byte order
        array = array.astype(np.float32 if dtype.itemsize < 4 else np.float64)
    steps = [s // array.itemsize for s in array.strides]
    odd = any(s % array.itemsize for s in array.strides) or not array.flags.aligned
    if odd or np.empty_like(array).strides != array.strides or not _kernel.lies_evenly(array.shape, steps, along):
        array = array.astype(array.dtype, order="C")
    return array, dtype, along


def holds_numbers(array: Array) -> bool:
    """Real ones."""
    return array.dtype.kind in "fiub" or array.dtype.name == BFLOAT16


def as_array(name: str, value: ArrayLike, convert: Callable[[Any], Any] = np.asarray) -> Any:
    """value as an array of any kind; what NumPy, or whatever else converts, cannot read is an error that names it."""
    if isinstance(value, np.ma.MaskedArray):
        raise _checks.masked_array(name)
    try:
        array = convert(value)
        if array.dtype == object:
            array.astype(np.float64)  # are there whole numbers that even float64 does not hold?
        return array
    except OverflowError:
        raise _checks.too_large(name) from None
    except (RuntimeError, TypeError, ValueError) as error:  # of a tensor that requires grad, of uneven rows
        raise _checks.unreadable(name, value, error) from error


def as_numbers(name: str, value: ArrayLike) -> Array:
    """value as an array of real numbers."""
    array: Array = as_array(name, value)
    if array.dtype == object and array.ndim == 0:  # a fraction, say
        array = np.asarray(_checks.check_number(name, value))
    if array.dtype.kind == "c":
        raise _checks.not_real(name, array.dtype)
    if not holds_numbers(array):
        raise _checks.not_a_number(name, value)
    return array


def per_slice(name: str, value: ArrayLike, slices: tuple[int, ...]) -> tuple[float, Array | None]:
    if isinstance(value, float | int):
        return _checks.check_number(name, value), None
    array = as_numbers(name, value)
    if array.ndim == 0:
        return float(array), None
    try:
        whole = np.broadcast_to(array, slices)
    except ValueError:
        raise _checks.not_broadcastable(name, slices, array.shape) from None
    return 0.0, np.ascontiguousarray(whole, dtype=np.float64)


def _project(
    x: Array,
    k: ArrayLike,
    tau: ArrayLike,
    along: int,
    axis: SupportsIndex,
    y: Array | None,
    mu: Array | None,
    curve: str = "ramp",
) -> None:
    slices = x.shape[:along] + x.shape[along + 1 :]
    k_number, k_array = per_slice("k", k, slices)
    tau_number, tau_array = per_slice("tau", tau, slices)
    failure = _kernel.project(x, k_number, tau_number, y, mu, k_array, tau_array, along, threads(), CURVES.index(curve))
    if failure:
        k, tau = k_number if k_array is None else k_array, tau_number if tau_array is None else tau_array
        _checks.raise_failure(failure, k, tau, x.shape[along], f"axis {axis}")
