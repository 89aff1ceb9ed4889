"""soft_assignment for JAX: the search runs on the host, by the NumPy front end; derivatives by one custom_jvp rule."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex import _assignment, _checks
from hypersimplex._numpy import threads
from hypersimplex._numpy_assignment import MemoryRows
from hypersimplex.jax._along import Array
from hypersimplex.jax._arguments import floating, is_known, per_slice, widened


def soft_assignment(x: ArrayLike, k: ArrayLike, capacity: ArrayLike, tau: ArrayLike = 1.0) -> tuple[Array, Array]:
    """Solve argmin |y - x/tau|^2 over 0 <= y <= 1, where rows sum to k and columns to at most their capacity.

    y is a soft assignment of tokens (rows) to experts (columns). It equals clip((x - a_i - b_j)/tau, 0, 1) with one
    number a_i per token and one bias b_j >= 0 per expert. An expert with room left has bias 0.

    Return y and b. y has exact derivatives to x, k, capacity and tau. b has none. The search runs on the host. Under
    jit it is a callback, and a problem without a solution gives NaN.

    Args:
        x: floating-point array of tokens and experts. -inf keeps a token from an expert.
        k: the sum of every row: a number, or one per token (0 for padding).
        capacity: the largest sum of a column: a number, or one per expert.
        tau: temperature, positive.

    >>> x = jnp.array([[2.0, 1.0], [3.0, 0.5], [1.5, 1.0], [0.5, 1.0]])
    >>> y, bias = soft_assignment(x, k=1, capacity=2)
    >>> y
    Array([[0.625, 0.375],
           [1.   , 0.   ],
           [0.375, 0.625],
           [0.   , 1.   ]], dtype=float32)
    >>> bias
    Array([0.75, 0.  ], dtype=float32)
    """
    array = floating(x)
    if array.ndim != 2:
        raise _checks.not_a_matrix("x", array.shape)
    ks, taus = per_slice("k", k, array.shape[:1]), per_slice("tau", tau, ())
    limits = capacity if isinstance(capacity, jax.Array) else _assignment.as_capacity(capacity, array.shape[1])
    if limits.shape not in ((), (1,), (array.shape[1],)):
        raise _checks.wrong_shape("capacity", (array.shape[1],), limits.shape)
    wide = widened(array)
    if all(map(is_known, (array, ks, limits, taus))):
        rows, found = _find(np.asarray(wide), *(np.asarray(v, np.float64) for v in (ks, limits, taus)))
        y = jax.device_put(rows.y.astype(array.dtype, copy=False), array.sharding)
        return y, jnp.asarray(found, wide.dtype)
    y, bias, _ = _assign(wide, *(jnp.asarray(v, wide.dtype) for v in (ks, limits, taus)))
    return y.astype(array.dtype), bias


def _find(x: Any, k: Any, capacity: Any, tau: Any) -> tuple[MemoryRows, Any]:
    """The rows, placed, and the biases."""
    x = np.ascontiguousarray(x)
    ks = np.ascontiguousarray(np.broadcast_to(np.asarray(k, np.float64), x.shape[:1]))
    _checks.check_numbers(0, float(tau), x.shape[1], "axis -1")
    rows = MemoryRows(x, 0.0, ks, float(tau), threads(), "axis -1")
    found = _assignment.find(rows, _assignment.as_capacity(capacity, x.shape[1]), np.zeros(x.shape[1]))
    return rows, found.bias


def _solve_or_nan(x: Any, *numbers: Any) -> tuple[Any, Any, Any]:
    x = np.asarray(x)
    try:
        rows, bias = _find(x, *(np.asarray(v) for v in numbers))
        return tuple(a.astype(x.dtype, copy=False) for a in (rows.y, bias, _assignment.inverse(rows, bias)))  # type: ignore[return-value]
    except (ValueError, RuntimeError):
        experts = x.shape[1]
        return tuple(np.full(s, np.nan, x.dtype) for s in (x.shape, (experts,), (experts, experts)))  # type: ignore[return-value]


@jax.custom_jvp
def _assign(x: Array, k: Array, capacity: Array, tau: Array) -> tuple[Array, Array, Array]:
    """y, the biases, and the inverse that derivatives need."""
    experts = x.shape[1]
    shapes = tuple(jax.ShapeDtypeStruct(s, x.dtype) for s in (x.shape, (experts,), (experts, experts)))
    out: tuple[Array, Array, Array] = jax.pure_callback(
        _solve_or_nan, shapes, x, k, capacity, tau, vmap_method="sequential"
    )
    return out


@_assign.defjvp
def _derivative(primals: Any, tangents: Any) -> Any:
    """While the entries inside stay the same, all is linear: rows are centered, then columns by the inverse."""
    x, k, _, tau = primals
    dx, dk, dcapacity, dtau = tangents
    y, bias, inverse = _assign(*primals)
    lost, inside = jnp.isnan(y), (y > 0) & (y < 1)
    count = jnp.maximum(jnp.sum(inside, 1, keepdims=True), 1)
    centered = partial(_centered, inside, count)
    moved = jnp.where(inside & jnp.isfinite(x), dx, 0) / tau - jnp.where(lost, 0, y) * (dtau / tau)
    rows = centered(moved) + jnp.where(inside, jnp.broadcast_to(dk, k.shape)[..., None] / count, 0)
    shift = inverse @ (jnp.sum(rows, 0) - dcapacity)
    dy = jnp.where(lost, jnp.nan * dx, rows - centered(jnp.broadcast_to(shift, y.shape)))
    return (y, bias, inverse), (dy, jnp.zeros_like(bias), jnp.zeros_like(inverse))


def _centered(inside: Array, count: Array, v: Array) -> Array:
    v = jnp.where(inside, v, 0)
    return jnp.where(inside, v - jnp.sum(v, 1, keepdims=True) / count, 0)
