"""The arguments as arrays: numbers for each slice or class, and errors for values that are known to be wrong."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex import _checks, _numpy
from hypersimplex.jax._along import Array


def floating(x: ArrayLike, name: str = "x") -> Array:
    """x as an array; whole numbers are refused, not converted in silence."""
    array = converted(name, x)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise _checks.not_floating(name, getattr(x, "dtype", array.dtype))
    return array


def converted(name: str, value: ArrayLike) -> Array:
    """value as an array of JAX, of any kind."""
    array: Array = _numpy.as_array(name, value, jnp.asarray)
    return array


def per_slice(name: str, value: ArrayLike, slices: tuple[int, ...]) -> Any:
    """value as an array: NumPy's, in full precision, if it is known; JAX's otherwise."""
    array = as_array(name, value)
    if not _checks.fits(array.shape, slices):
        raise _checks.not_broadcastable(name, slices, array.shape)
    return array


def per_entry(name: str, value: ArrayLike, shape: tuple[int, ...], axis: int) -> Any:
    """The same for the entries of an array of this shape, of its rank and with axis as the last one."""
    array = as_array(name, value)
    if not _checks.fits(array.shape, shape):
        raise _checks.not_over_entries(name, shape, array.shape)
    array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    return (jnp if isinstance(array, jax.Array) else np).moveaxis(array, axis, -1)


def as_array(name: str, value: ArrayLike) -> Any:
    array: Any = value if isinstance(value, jax.Array) else _numpy.as_array(name, value)
    if array.ndim == 0 and not hasattr(value, "dtype"):
        return np.asarray(_checks.check_number(name, value))
    if not _holds_numbers(array):
        raise TypeError(f"{name} must be a number or an array of numbers, got dtype {array.dtype}")
    return array


def per_class(name: str, value: Any, classes: int) -> Any:
    """A number or one for each class, as an array: NumPy's if it is known, JAX's otherwise."""
    array: Any = value if isinstance(value, jax.Array) else _numpy.as_array(name, value)
    if not _holds_numbers(array):
        kind = type(value).__name__
        raise TypeError(f"{name} must be a number or one number for each class, got {kind}")
    if array.ndim > 1 or (array.ndim == 1 and array.shape[0] not in (1, classes)):
        raise ValueError(f"{name} must be a number or have shape ({classes},), got shape {array.shape}")
    return array


def _holds_numbers(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating)) or array.dtype.kind in "iub"


def is_known(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and getattr(value, "is_fully_addressable", True)


def check_problem(x: Array, k: Any, tau: Any, axis: int, where: str, axis_name: Any, whole: bool) -> None:
    n = x.shape[axis]
    if is_known(k) and k.size and axis_name is None:
        k = np.asarray(k, np.float64)
        for bad in first_outside(k, n):
            raise _checks.bad_k(float(bad), n, where)
        for bad in k[k != np.floor(k)][:1] if whole else ():
            raise _checks.not_whole(float(bad))
    check_tau(tau)
    if x.size and axis_name is None and is_known(x) and is_known(k):
        usable = np.asarray(_usable(x, axis))
        ks = np.broadcast_to(k, usable.shape)
        for at in np.argwhere(ks > usable)[:1]:
            raise _checks.masked_k(float(ks[tuple(at)]), int(usable[tuple(at)]), where)


def check_tau(tau: Any) -> None:
    if is_known(tau):
        values = np.asarray(tau, np.float64)
        for bad in values[~((values > 0) & np.isfinite(values))][:1]:
            raise _checks.bad_tau(bad)


def first_outside(values: Any, top: float) -> Any:
    """The first of the values that is not between 0 and top, if there is one."""
    values = np.asarray(values)
    return values[~((values >= 0) & (values <= top))][:1]


@partial(jax.jit, static_argnums=1)
def _usable(x: Array, axis: int) -> Array:
    """How many entries k may count on; a NaN slice takes any k, since it is NaN anyway."""
    usable = jnp.sum(x != -jnp.inf, axis)
    return jnp.where(jnp.any(jnp.isnan(x), axis), x.shape[axis], usable)


def widened(x: Array) -> Array:
    """x in the dtype that is computed with."""
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def split_k(k: Any, wide: Any) -> tuple[Array, Array]:
    """k as a sum of two numbers: the nearest of the dtype, which carries the gradient, and the rest."""
    if k.dtype == bool:
        k = k.astype(np.int32)
    high = k.astype(wide)
    if isinstance(k, jax.Array) and jnp.issubdtype(k.dtype, jnp.floating):
        low = jax.lax.stop_gradient(k - high.astype(k.dtype))
    elif isinstance(k, jax.Array):
        low = k - high.astype(k.dtype)
    else:
        low = k.astype(np.float64) - high.astype(np.float64)
    return jnp.asarray(high), jnp.asarray(low.astype(wide))


def tau_in_range(tau: Any, wide: Any) -> Array:
    """tau brought to where it and 1/tau are numbers of the dtype; a bad one stays what it is."""
    low, high = 8 * float(jnp.finfo(wide).tiny), float(jnp.finfo(wide).max) / 4
    if not isinstance(tau, jax.Array):
        return jnp.asarray(np.clip(tau.astype(np.float64), low, high).astype(wide))
    if not jnp.issubdtype(tau.dtype, jnp.floating) or jnp.finfo(tau.dtype).bits < jnp.finfo(wide).bits:
        tau = tau.astype(wide)
    good = (tau > 0) & jnp.isfinite(tau)
    return jnp.where(good & (tau > high), high, jnp.where(good & (tau < low), low, tau)).astype(wide)


def beside(value: Array, slices: tuple[int, ...], axis: int) -> Array:
    """Numbers with the rank of the array: one for each slice, or a single one."""
    if value.size == 1 and math.prod(slices) != 1:
        return value.reshape((1,) * (len(slices) + 1))
    return jnp.expand_dims(jnp.broadcast_to(value, slices), axis)


def spread_like(f: Callable[..., Any], x: Array, *gone: int | None) -> Callable[..., Any]:
    """f, whose results are spread over devices as x is, but for the axis of each that is gone.

    With Explicit axes of a mesh every intermediate value would need a sharding of its own; with Auto ones XLA finds it.
    """
    sharding = getattr(jax.typeof(x), "sharding", None) if hasattr(jax, "typeof") else None
    explicit = getattr(getattr(sharding, "mesh", None), "explicit_axes", ())
    if sharding is None or not explicit:
        return f
    specs = [[None if i == axis else axes for i, axes in enumerate(sharding.spec)] for axis in gone]
    out = tuple(jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*spec)) for spec in specs)
    spread: Callable[..., Any] = jax.sharding.auto_axes(f, axes=explicit, out_sharding=out)
    return spread
