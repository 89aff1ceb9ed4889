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
from hypersimplex.jax._search import kth_largest_key, number_to_key


def soft_topk(
    x: ArrayLike,
    k: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    axis: SupportsIndex = -1,
    curve: str = "ramp",
    axis_name: Any = None,
    hard: bool = False,
) -> Array:
    """Choose the k largest entries of every slice along axis, softly: y from 0 to 1 with sum k, differentiable.

    `soft_binary_argmax` is the same function under the name that the paper gives it for the default curve.

    y equals S((x - mu)/tau) with one number mu per slice, and it can be differentiated to any order in x, k and tau.
    `curve` names S, which rises from 0 to 1:

        "ramp"      clip(t, 0, 1). y has exact zeros and ones; at k=1 it is sparsemax. It solves
                    argmin |y - x/tau|^2 over 0 <= y <= 1, sum(y) = k.
        "exp"       min(1, e^t). At k=1 it is softmax.
        "logistic"  1/(1 + e^-t). Every entry has a gradient; known as LML.
        "laplace"   e^t/2 below 0, 1 - e^-t/2 above. Every entry has a gradient; known as LapSum.

    With s the slope of S at each entry and m the mean of v weighted by s, the gradient of sum(v * y) to x is
    s (v - m)/tau. The gradient to k is m, the one to tau is -sum s (v - m) t/tau with t = (x - mu)/tau.

    A bad value raises an error if it is known when the function is called or traced. Under jit the slice is NaN if
    k is out of range, if tau is not positive, or if fewer than k entries are above -inf.

    Args:
        x: floating-point array. float16 and bfloat16 are computed in float32 and returned in their own dtype.
        k: the sum of every slice, any real number from 0 to its size; or an array that broadcasts over the slices.
        tau: temperature, positive; or an array that broadcasts over the slices.
        axis: the axis along which the slices lie.
        curve: "ramp", "exp", "logistic" or "laplace".
        axis_name: under shard_map or pmap, the mesh axis over which the slices are spread.
        hard: return exactly k ones, as binary_argmax does, and keep the gradients of y. k must be whole, and
            axis_name must not be given.

    >>> x = jnp.array([0.25, 1.5, 1.0])
    >>> soft_topk(x, k=1).round(4)
    Array([0.  , 0.75, 0.25], dtype=float32)
    >>> jax.grad(lambda x: soft_topk(x, k=1)[1])(x)
    Array([ 0. ,  0.5, -0.5], dtype=float32)
    >>> soft_topk(x, k=1, hard=True)
    Array([0., 1., 0.], dtype=float32)
    """
    if hard and axis_name is not None:
        raise ValueError(f"hard must be False for slices that go on over a mesh axis, got axis_name={axis_name!r}")
    (y,) = solve(x, k, tau, axis, axis_name, "y", curve=curve)
    return binary_argmax(x, k, axis=axis) + (y - jax.lax.stop_gradient(y)) if hard else y


soft_binary_argmax = soft_topk  # under the paper's name


def threshold(
    x: ArrayLike,
    k: ArrayLike,
    tau: ArrayLike = 1.0,
    *,
    axis: SupportsIndex = -1,
    curve: str = "ramp",
    axis_name: Any = None,
) -> Array:
    """Return mu, one number for each slice, such that S((x - mu)/tau) sums to k; S is the curve of soft_topk.

    If every number of an interval would do, mu is the middle, or the finite end if only one end is finite. Where no
    finite number would do it is infinite.

    >>> threshold(jnp.array([0.25, 1.5, 1.0]), k=1).round(4)
    Array(0.75, dtype=float32)
    """
    return solve(x, k, tau, axis, axis_name, "mu", curve=curve)[0]


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
    x: ArrayLike,
    k: ArrayLike,
    tau: ArrayLike,
    axis: SupportsIndex,
    axis_name: Any,
    *wanted: str,
    curve: str = "ramp",
) -> tuple[Array, ...]:
    """Return what is wanted of "y", the projection, and "mu", its threshold, from one search."""
    _checks.check_curve(curve)
    array, numbers, at = _prepare(x, k, tau, axis, axis_name)
    out: tuple[Array, ...] = _solve(array, *numbers, Along(at, axis_name), curve, wanted)
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


@partial(jax.jit, static_argnums=(4, 5, 6))
def _solve(
    x: Array, k: Array, k_low: Array, tau: Array, along: Along, curve: str, wanted: tuple[str, ...]
) -> tuple[Array, ...]:
    def run(x: Array, *numbers: Array) -> tuple[Array, ...]:
        y, mu = project(widened(x), *numbers, along, curve)
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

    kth = kth_largest_key(key, wanted, Along(axis))
    above, ties = key > kth, key == kth
    y = above | (ties & (jnp.cumsum(ties, axis, dtype=jnp.int32) <= wanted - count(above)))
    valid = (k >= 0) & (k <= x.shape[axis]) & (wanted <= count(x != -jnp.inf)) & (k == jnp.floor(k))
    broken = jnp.any(jnp.isnan(x), axis, keepdims=True) | ~valid
    return jnp.where(broken, jnp.nan, (y & (wanted > 0)).astype(x.dtype))
