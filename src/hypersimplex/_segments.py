"""Soft top-k of rows of different lengths that lie one after the other, for NumPy."""

import numpy as np
from numpy.typing import ArrayLike

from hypersimplex import _checks, _kernel
from hypersimplex._numpy import Array, per_slice, prepare, threads


def soft_topk_segments(x: ArrayLike, k: ArrayLike, offsets: ArrayLike, tau: ArrayLike = 1.0) -> Array:
    """Compute soft_topk of every segment x[offsets[i]:offsets[i + 1]], for rows of different lengths.

    The result is that of soft_topk for each segment by itself, or for rows padded with -inf.

    Args:
        x: floating-point array of one dimension.
        k: the sum of every segment, from 0 to its size: a number, or one per segment.
        offsets: whole numbers that rise from 0 to the size of x, one more than there are segments.
        tau: temperature, positive: a number, or one per segment.

    >>> x = np.array([0.1, 1.6, 1.0, 2.0, 2.5])
    >>> soft_topk_segments(x, k=1, offsets=[0, 3, 5])
    array([0.  , 0.8 , 0.2 , 0.25, 0.75])
    """
    x, dtype, _ = prepare(x, -1)
    _checks.check_flat("x", x.shape)
    ends = np.asarray(offsets)
    _checks.check_offsets(ends.shape, ends.dtype.kind in "iu", ends.dtype)
    ends = np.ascontiguousarray(ends, dtype=np.int64)
    slices = (len(ends) - 1,)
    k, ks = per_slice("k", k, slices)
    tau, taus = per_slice("tau", tau, slices)
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    failure = _kernel.segments(x, ends, k, tau, y=y, ks=ks, taus=taus, threads=threads())
    if failure:
        at = failure[1]
        bad_k, bad_tau = (v if vs is None else vs[at % len(vs)] for v, vs in ((k, ks), (tau, taus)))
        n = int(np.diff(ends)[at % slices[0]]) if slices[0] else 0
        _checks.raise_segment_failure(failure, bad_k, bad_tau, x.size, n)
    return y.astype(dtype, copy=False)
