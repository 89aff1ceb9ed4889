"""The box section for JAX: axes, dtypes, broadcasting and checks, and its derivatives by one custom_jvp rule."""

import math
from functools import partial
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from hypersimplex import _checks
from hypersimplex._box_formula import correction
from hypersimplex.jax._along import Array
from hypersimplex.jax._arguments import floating, is_known, per_entry, per_slice, spread_like, tau_in_range, widened
from hypersimplex.jax._box_primitives import box, centered


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

    The solution is y = clip(x/tau - nu * weight, lower, upper) with one number nu per slice. It can be differentiated
    to any order in every argument.

    Let A be the entries strictly between their bounds, w the weights, and m = sum_A(w v)/sum_A(w w). The gradient of
    sum(v * y) to x is (v - w m)/tau on A, the one to the total is m. An entry on a bound passes v - w m to that bound.

    Bounds that cannot meet the total raise an error if all values are known. Under jit the slice is NaN.

    Args:
        x: floating-point array. float16 and bfloat16 are computed in float32 and returned in their own dtype.
        total: what every slice sums to: a number, or an array that broadcasts over the slices.
        lower, upper: bounds, possibly infinite: numbers, or arrays that broadcast to x's shape.
        weight: positive: a number, or an array that broadcasts to x's shape. None means 1.
        tau: temperature, positive: a number, or an array that broadcasts over the slices.
        axis: the axis along which the slices lie.
        at_most: allow a sum below the total.

    >>> x = jnp.array([0.25, 1.5, 1.0])
    >>> box_section(x, total=1.5, upper=0.75)
    Array([0.  , 0.75, 0.75], dtype=float32)
    >>> jax.grad(lambda x: box_section(x, total=1.5, weight=2.0)[1])(x)
    Array([ 0. ,  0.5, -0.5], dtype=float32)
    """
    array = floating(x)
    at = _checks.check_dim("axis", axis, array.ndim)
    slices = (*array.shape[:at], *array.shape[at + 1 :])
    each = [per_slice(name, value, slices) for name, value in (("total", total), ("tau", tau))]
    named = (("lower", lower), ("upper", upper), ("weight", 1.0 if weight is None else weight))
    entries = [per_entry(name, value, array.shape, at) for name, value in named]
    array = jnp.moveaxis(array, at, -1)
    if all(is_known(value) for value in (array, *each, *entries)):
        _check(array, slices, each, entries, at_most)
    wide = widened(array).dtype
    numbers = [
        jnp.expand_dims(jnp.broadcast_to(v, slices), -1)
        for v in (jnp.asarray(each[0], wide), tau_in_range(each[1], wide))
    ]
    y = _box_section(array, numbers[0], *(jnp.asarray(v, wide) for v in entries), numbers[1], at_most)
    return jnp.moveaxis(y, -1, at)


def _check(x: Array, slices: tuple[int, ...], each: list[Any], entries: list[Any], at_most: bool) -> None:
    rows = (math.prod(slices), x.shape[-1])
    whole = (np.broadcast_to(np.asarray(v, np.float64), x.shape).reshape(rows) for v in (x, *entries))
    one_each = (np.broadcast_to(np.asarray(v, np.float64), slices).reshape(-1) for v in each)
    room = _checks.box_room(float(jnp.finfo(widened(x).dtype).eps))
    _checks.check_box(room, at_most, *whole, *one_each)


@partial(jax.jit, static_argnums=6)
def _box_section(x: Array, total: Array, lower: Array, upper: Array, weight: Array, tau: Array, at_most: bool) -> Array:
    if x.size == 0:
        return x

    def run(x: Array, *given: Array) -> tuple[Array]:
        return (_box(widened(x), *given, at_most)[0].astype(x.dtype),)

    y: Array = spread_like(run, x, None)(x, total, lower, upper, weight, tau)[0]
    return y


_box = jax.custom_jvp(box, nondiff_argnums=(6,))


def _derivatives(at_most: bool, primals: Any, tangents: Any) -> Any:
    """Those of the formula that holds while the free entries stay; differentiated again, they give the next order."""
    fixed = jax.lax.stop_gradient
    found = _box(*primals, at_most)
    y, mu = fixed(found[0]), fixed(found[1])
    moving = [i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero)]
    dy = centered(tangents[0], y, mu, primals[2:], at_most) if 0 in moving else jnp.zeros_like(y)
    numbers = [i for i in moving if i]

    def change(*values: Array) -> Array:
        given = dict(enumerate(primals)) | dict(zip(numbers, values, strict=True))
        *rest, tau = (given[i] for i in range(6))
        out: Array = correction(jnp, fixed, y, mu, at_most, *rest, 1 / fixed(tau), fixed(tau) / tau)
        return out

    if numbers:
        dy = dy + jax.jvp(change, [primals[i] for i in numbers], [tangents[i] for i in numbers])[1]
    return found, (dy, jnp.zeros_like(mu))


_box.defjvp(_derivatives, symbolic_zeros=True)
