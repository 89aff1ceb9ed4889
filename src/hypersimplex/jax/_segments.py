"""Soft top-k of rows of different lengths that lie one after the other, for JAX."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex import _checks
from hypersimplex._numpy import as_array
from hypersimplex.jax._along import Array
from hypersimplex.jax._arguments import check_tau, floating, is_known, per_slice
from hypersimplex.jax._operator import soft_topk


def soft_topk_segments(
    x: ArrayLike, k: ArrayLike, offsets: ArrayLike, tau: ArrayLike = 1.0, *, curve: str = "ramp"
) -> Array:
    """Compute soft_topk of every segment x[offsets[i]:offsets[i + 1]], for rows of different lengths.

    The result is that of soft_topk for each segment by itself, or for rows padded with -inf. The offsets must be known
    when the function is traced, because shapes depend on them. Segments are padded to the next power of two, and
    segments of the same padded size are solved together.

    Args:
        x: floating-point array of one dimension.
        k: the sum of every segment, from 0 to its size: a number, or one per segment.
        offsets: whole numbers that rise from 0 to the size of x, one more than there are segments.
        tau: temperature, positive: a number, or one per segment.
        curve: "ramp", "exp", "logistic" or "laplace", as for soft_topk.

    >>> x = jnp.array([0.25, 1.5, 1.0, 2.0, 2.5])
    >>> soft_topk_segments(x, k=1, offsets=[0, 3, 5])
    Array([0.  , 0.75, 0.25, 0.25, 0.75], dtype=float32)
    """
    _checks.check_curve(curve)
    array = floating(x)
    _checks.check_flat("x", array.shape)
    if not is_known(offsets):
        raise TypeError("offsets must be known when the function is traced, got a tracer")
    ends = as_array("offsets", offsets)
    _checks.check_offsets(ends.shape, ends.dtype.kind in "iu", ends.dtype)
    ends = ends.astype(np.int64)
    sizes = np.diff(ends)
    k, tau = per_slice("k", k, sizes.shape), per_slice("tau", tau, sizes.shape)
    _checks.check_segments(ends, array.size, np.asarray(k, np.float64) if is_known(k) else None)
    check_tau(tau)
    return _solve(array, ends, sizes, k, tau, curve)


def _solve(x: Array, ends: Any, sizes: Any, k: Any, tau: Any, curve: str) -> Array:
    padded = jnp.append(x, jnp.asarray(-jnp.inf, x.dtype))
    parts, places = [x[:0]], np.empty(x.shape, np.int64)
    found = 0
    widths = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    for width in np.unique(widths[sizes > 0]):
        own = np.flatnonzero((widths == width) & (sizes > 0))
        steps = np.arange(width)
        at = ends[own, None] + steps
        inside = steps < sizes[own, None]
        rows = padded[np.where(inside, at, x.size)]
        numbers = (v if v.ndim == 0 or v.size == 1 else v[own] for v in (k, tau))
        parts.append(jnp.ravel(soft_topk(rows, *numbers, curve=curve)))
        places[at[inside]] = found + np.flatnonzero(inside)
        found += rows.size
    return jnp.concatenate(parts)[places] if found else x
