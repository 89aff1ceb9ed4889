"""The operator for JAX: axes, dtypes, broadcasting and checks peeled off around the projection."""

from functools import partial
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex import _checks
from hypersimplex.jax._along import Along, Array
from hypersimplex.jax._arguments import (
    beside,
    check_problem,
    floating,
    per_slice,
    split_k,
    spread_like,
    tau_in_range,
    widened,
)
from hypersimplex.jax._primitives import project
from hypersimplex.jax._search import middle_key, number_to_key


def soft_binary_argmax(
    x: ArrayLike,
    k: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    axis: SupportsIndex = -1,
    axis_name: Any = None,
    hard: bool = False,
) -> Array:
    """Solve argmin |y - x/tau|^2 over 0 <= y <= 1, sum(y) = k, for every slice of x along axis.

    y is a soft choice of the k largest entries. It equals clip((x - mu)/tau, 0, 1) with one number mu per slice, and
    it can be differentiated to any order in x, k and tau. `soft_topk` is the same function.

    Let A be the entries with 0 < y < 1. The gradient of sum(v * y) to x is (v - mean_A v)/tau on A and 0 elsewhere.
    The gradient to k is mean_A v, the one to tau is -sum_A v (y - mean_A y)/tau.

    A bad value raises an error if it is known when the function is called or traced. Under jit the slice is NaN if
    k is out of range, if tau is not positive, or if fewer than k entries are above -inf.

    Args:
        x: floating-point array. float16 and bfloat16 are computed in float32 and returned in their own dtype.
        k: the sum of every slice, any real number from 0 to its size; or an array that broadcasts over the slices.
        tau: temperature, positive; or an array that broadcasts over the slices.
        axis: the axis along which the slices lie.
        axis_name: under shard_map or pmap, the mesh axis over which the slices are spread.
        hard: return exactly k ones, as binary_argmax does, and keep the gradients of y. k must be whole, and
            axis_name must not be given.

    >>> x = jnp.array([0.25, 1.5, 1.0])
    >>> soft_binary_argmax(x, k=1).round(4)
    Array([0.  , 0.75, 0.25], dtype=float32)
    >>> jax.grad(lambda x: soft_binary_argmax(x, k=1)[1])(x)
    Array([ 0. ,  0.5, -0.5], dtype=float32)
    >>> soft_topk(x, k=1, hard=True)
    Array([0., 1., 0.], dtype=float32)
    """
    if hard and axis_name is not None:
        raise ValueError(f"hard must be False for slices that go on over a mesh axis, got axis_name={axis_name!r}")
    (y,) = solve(x, k, tau, axis, axis_name, "y")
    return binary_argmax(x, k, axis=axis) + (y - jax.lax.stop_gradient(y)) if hard else y


soft_topk = soft_binary_argmax  # under the name that people search for


def threshold(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike = 1.0, *, axis: SupportsIndex = -1, axis_name: Any = None
) -> Array:
    """Return mu, one number for each slice, such that clip((x - mu)/tau, 0, 1) sums to k.

    If every number of an interval would do, mu is the middle, or the finite end if only one end is finite.

    >>> threshold(jnp.array([0.25, 1.5, 1.0]), k=1).round(4)
    Array(0.75, dtype=float32)
    """
    return solve(x, k, tau, axis, axis_name, "mu")[0]


def binary_argmax(x: ArrayLike, k: ArrayLike, *, axis: SupportsIndex = -1) -> Array:
    """Return exactly k ones, at the largest entries of every slice, and zeros elsewhere.

    Of equal entries the one with the lower index is chosen. The result has no gradient. Entries of -inf are never
    chosen.

    >>> binary_argmax(jnp.array([0.1, 1.6, 1.0, 1.0]), k=2)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    array, numbers, at = _prepare(x, k, 1.0, axis, None, whole=True)
    y: Array = _binary(jax.lax.stop_gradient(array), *numbers[:2], at)
    return y


def solve(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike, axis: SupportsIndex, axis_name: Any, *wanted: str
) -> tuple[Array, ...]:
    """Return what is wanted of "y", the projection, and "mu", its threshold, from one search."""
    array, numbers, at = _prepare(x, k, tau, axis, axis_name)
    out: tuple[Array, ...] = _solve(array, *numbers, Along(at, axis_name), wanted)
    return out


def _prepare(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike, axis: SupportsIndex, axis_name: Any, whole: bool = False
) -> tuple[Array, list[Array], int]:
    """The array; k, what its dtype rounds away from k, and tau, for each slice; and the axis from the front."""
    array = floating(x)
    at = _checks.check_dim("axis", axis, array.ndim)
    slices = (*array.shape[:at], *array.shape[at + 1 :])
    k, tau = per_slice("k", k, slices), per_slice("tau", tau, slices)
    check_problem(array, k, tau, at, f"axis {axis}", axis_name, whole)
    wide = widened(array).dtype
    return array, [beside(v, slices, at) for v in (*split_k(k, wide), tau_in_range(tau, wide))], at


@partial(jax.jit, static_argnums=(4, 5))
def _solve(x: Array, k: Array, k_low: Array, tau: Array, along: Along, wanted: tuple[str, ...]) -> tuple[Array, ...]:
    def run(x: Array, *numbers: Array) -> tuple[Array, ...]:
        y, mu = project(widened(x), *numbers, along)
        return tuple(y.astype(x.dtype) if which == "y" else mu for which in wanted)

    if x.size == 0:
        mu = jnp.zeros(np.delete(x.shape, along.axis), k.dtype)
        return tuple(x if which == "y" else mu for which in wanted)
    out = spread_like(run, x, *(None if which == "y" else along.axis for which in wanted))(x, k, k_low, tau)
    return tuple(v if which == "y" else jnp.squeeze(v, along.axis) for v, which in zip(out, wanted, strict=True))


@partial(jax.jit, static_argnums=3)
def _binary(x: Array, k: Array, k_low: Array, axis: int) -> Array:
    if x.size == 0:
        return x
    (y,) = spread_like(lambda x, k, k_low: (_marked(x, k, k_low, axis),), x, None)(x, k, k_low)
    return y  # type: ignore[no-any-return]


def _marked(x: Array, k: Array, k_low: Array, axis: int) -> Array:
    key = number_to_key(widened(x))
    wanted = k.astype(jnp.int32) + k_low.astype(jnp.int32)

    def count(condition: Array) -> Array:
        return jnp.sum(condition, axis, dtype=jnp.int32, keepdims=True)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        lo, hi = ends
        middle = middle_key(lo, hi)
        enough = count(key >= middle) >= wanted
        return jnp.where(enough, middle, lo), jnp.where(enough, hi, jnp.maximum(middle - 1, lo))

    # The largest key with at least k entries at or above it: the k-th largest entry.
    ends = jnp.min(key, axis, keepdims=True), jnp.max(key, axis, keepdims=True)
    kth, _ = jax.lax.fori_loop(0, jnp.iinfo(key.dtype).bits, halve, ends)
    above, ties = key > kth, key == kth
    y = above | (ties & (jnp.cumsum(ties, axis, dtype=jnp.int32) <= wanted - count(above)))
    valid = (k >= 0) & (k <= x.shape[axis]) & (wanted <= count(x != -jnp.inf)) & (k == jnp.floor(k))
    broken = jnp.any(jnp.isnan(x), axis, keepdims=True) | ~valid
    return jnp.where(broken, jnp.nan, (y & (wanted > 0)).astype(x.dtype))
