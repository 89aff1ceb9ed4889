"""The operator for JAX: axes, dtypes, broadcasting and checks peeled off around the projection."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex import _checks
from hypersimplex.jax._project import project
from hypersimplex.jax._search import Along, Array, number_to_key


def soft_binary_argmax(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike = 1.0, *, axis: SupportsIndex = -1, axis_name: Any = None
) -> Array:
    """Solve argmin |y - x/tau|^2 over 0 <= y <= 1, sum(y) = k, for every slice of x along axis.

    The solution is y = clip((x - mu)/tau, 0, 1) with one number mu per slice: a soft choice of the k largest entries,
    differentiable to any order in x, k and tau. With A = {0 < y < 1} the gradient of sum(v * y) is (v - mean_A v)/tau
    on A and 0 elsewhere; to k it is mean_A v, to tau -sum_A v (y - mean_A y)/tau.

    A bad value that is known when the function is called or traced is an error; under jit, a k outside its range, a
    tau that is not positive, or fewer entries above -inf than k give a slice of NaN.

    Args:
        x: floating-point array. float16 and bfloat16 are computed in float32 and returned in their own dtype.
        k: the sum of every slice, any real number from 0 to its size; or an array that broadcasts over the slices.
        tau: temperature, positive; or an array that broadcasts over the slices.
        axis: the axis along which the slices lie.
        axis_name: under shard_map or pmap, the mesh axis over which the slices go on.

    >>> x = jnp.array([0.25, 1.5, 1.0])
    >>> soft_binary_argmax(x, k=1)
    Array([0.  , 0.75, 0.25], dtype=float32)
    >>> jax.grad(lambda x: soft_binary_argmax(x, k=1)[1])(x)
    Array([ 0. ,  0.5, -0.5], dtype=float32)
    """
    p = _prepare(x, k, tau, axis, axis_name)
    y: Array = _soft(p.x, p.k, p.k_low, p.tau, p.along)
    return y


def threshold(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike = 1.0, *, axis: SupportsIndex = -1, axis_name: Any = None
) -> Array:
    """Return mu, one number for each slice, such that clip((x - mu)/tau, 0, 1) sums to k.

    Where an interval of numbers would do, mu is its middle, or its finite end if only one end is finite.

    >>> threshold(jnp.array([0.25, 1.5, 1.0]), k=1)
    Array(0.75, dtype=float32)
    """
    p = _prepare(x, k, tau, axis, axis_name)
    mu: Array = _threshold(p.x, p.k, p.k_low, p.tau, p.along)
    return mu


def binary_argmax(x: ArrayLike, k: ArrayLike, *, axis: SupportsIndex = -1) -> Array:
    """Return exactly k ones, at the largest entries of every slice, and zeros elsewhere; ties go to the lower index.

    The result is piecewise constant and carries no gradient. Entries of -inf are never chosen.

    >>> binary_argmax(jnp.array([0.1, 1.6, 1.0, 1.0]), k=2)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    p = _prepare(x, k, 1.0, axis, None, whole=True)
    y: Array = _binary(jax.lax.stop_gradient(p.x), p.k, p.k_low, p.along.axis)
    return y


class _Problem(NamedTuple):
    x: Array
    k: Array
    k_low: Array
    tau: Array
    along: Along


def _prepare(
    x: ArrayLike, k: ArrayLike, tau: ArrayLike, axis: SupportsIndex, axis_name: Any, whole: bool = False
) -> _Problem:
    dtype = getattr(x, "dtype", None)
    array = jnp.asarray(x)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise _checks.not_floating("x", dtype or array.dtype)
    at = _checks.check_dim("axis", axis, array.ndim)
    slices = (*array.shape[:at], *array.shape[at + 1 :])
    k, tau = _per_slice("k", k, slices), _per_slice("tau", tau, slices)
    _check(array, k, tau, at, f"axis {axis}", axis_name, whole)
    wide = jnp.float64 if array.dtype == jnp.float64 else jnp.float32
    high, low = split(k, wide)
    return _Problem(
        array,
        _expanded(high, slices, at),
        _expanded(low, slices, at),
        _expanded(_in_range(tau, wide), slices, at),
        Along(at, axis_name),
    )


def _per_slice(name: str, value: ArrayLike, slices: tuple[int, ...]) -> Any:
    """value as an array: NumPy's, in full precision, if it is known; JAX's otherwise."""
    if isinstance(value, jax.Array):
        array: Any = value
    elif np.ndim(value) == 0:
        array = np.asarray(value if hasattr(value, "dtype") else _checks.check_number(name, value))
    else:
        array = np.asarray(value)
    if not _holds_numbers(array):
        raise TypeError(f"{name} must be a number or an array of numbers, got dtype {array.dtype}")
    try:
        fits = np.broadcast_shapes(array.shape, slices) == slices
    except ValueError:
        fits = False
    if not fits:
        raise _checks.not_broadcastable(name, slices, array.shape)
    return array


def per_class(name: str, value: Any, classes: int) -> Any:
    """A number or one for each class, as an array: NumPy's if it is known, JAX's otherwise."""
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        fits = _holds_numbers(array)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        kind = type(value).__name__
        raise TypeError(f"{name} must be a number or one number for each class, got {kind}")
    if array.ndim > 1 or (array.ndim == 1 and array.shape[0] not in (1, classes)):
        raise ValueError(f"{name} must be a number or have shape ({classes},), got shape {array.shape}")
    return array


def _holds_numbers(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating)) or array.dtype.kind in "iub"


def is_known(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and getattr(value, "is_fully_addressable", True)


def _check(x: Array, k: Any, tau: Any, axis: int, where: str, axis_name: Any, whole: bool) -> None:
    n = x.shape[axis]
    if is_known(k) and k.size and axis_name is None:
        for bad in _first(k, lambda k: ~((k >= 0) & (k <= n))):
            raise _checks.bad_k(bad, n, where)
        for bad in _first(k, lambda k: k != np.floor(k)) if whole else ():
            raise _checks.not_whole(bad)
    check_tau(tau)
    if x.size and axis_name is None and is_known(x) and is_known(k):
        usable = np.asarray(_usable(x, axis))
        ks = np.broadcast_to(np.asarray(k, np.float64), usable.shape)
        for at in np.argwhere(ks > usable)[:1]:
            raise _checks.masked_k(float(ks[tuple(at)]), int(usable[tuple(at)]))


def check_tau(tau: Any) -> None:
    for bad in _first(tau, lambda tau: ~((tau > 0) & np.isfinite(tau))) if is_known(tau) else ():
        raise _checks.bad_tau(bad)


def _first(values: Any, is_bad: Any) -> list[float]:
    values = np.asarray(values, np.float64)
    return [float(bad) for bad in values[is_bad(values)][:1]]


@partial(jax.jit, static_argnums=1)
def _usable(x: Array, axis: int) -> Array:
    """How many entries k may count on; a NaN slice takes any k, since it is NaN anyway."""
    usable = jnp.sum(x != -jnp.inf, axis)
    return jnp.where(jnp.any(jnp.isnan(x), axis), x.shape[axis], usable)


def split(k: Any, wide: Any) -> tuple[Array, Array]:
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


def _in_range(tau: Any, wide: Any) -> Array:
    """tau brought to where it and 1/tau are numbers of the dtype; a bad one stays what it is."""
    low, high = 8 * float(jnp.finfo(wide).tiny), float(jnp.finfo(wide).max) / 4
    if not isinstance(tau, jax.Array):
        return jnp.asarray(np.clip(tau.astype(np.float64), low, high).astype(wide))
    if not jnp.issubdtype(tau.dtype, jnp.floating) or jnp.finfo(tau.dtype).bits < jnp.finfo(wide).bits:
        tau = tau.astype(wide)
    good = (tau > 0) & jnp.isfinite(tau)
    return jnp.where(good & (tau > high), high, jnp.where(good & (tau < low), low, tau)).astype(wide)


def _expanded(value: Array, slices: tuple[int, ...], axis: int) -> Array:
    return jnp.expand_dims(jnp.broadcast_to(value, slices), axis)


def _widened(x: Array) -> Array:
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def _spread(f: Callable[..., Array], x: Array, gone: int | None = None) -> Callable[..., Array]:
    """f, whose result is spread over devices as x is, but for the axis that is gone.

    With Explicit axes of a mesh every intermediate value would need a sharding of its own; with Auto ones XLA finds it.
    """
    sharding = getattr(jax.typeof(x), "sharding", None) if hasattr(jax, "typeof") else None
    explicit = getattr(getattr(sharding, "mesh", None), "explicit_axes", ())
    if sharding is None or not explicit:
        return f
    spec = [None if i == gone else axes for i, axes in enumerate(sharding.spec)]
    out = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*spec))
    spread: Callable[..., Array] = jax.sharding.auto_axes(f, axes=explicit, out_sharding=out)
    return spread


@partial(jax.jit, static_argnums=4)
def _soft(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> Array:
    if x.size == 0:
        return x
    return _spread(lambda x, *rest: project(_widened(x), *rest, along)[0].astype(x.dtype), x)(x, k, k_low, tau)


@partial(jax.jit, static_argnums=4)
def _threshold(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> Array:
    if x.size == 0:
        return jnp.zeros(np.delete(x.shape, along.axis), k.dtype)
    mu = _spread(lambda x, *rest: project(_widened(x), *rest, along)[1], x, along.axis)(x, k, k_low, tau)
    return jnp.squeeze(mu, along.axis)


@partial(jax.jit, static_argnums=3)
def _binary(x: Array, k: Array, k_low: Array, axis: int) -> Array:
    if x.size == 0:
        return x
    return _spread(partial(_marked, axis=axis), x)(x, k, k_low)


def _marked(x: Array, k: Array, k_low: Array, axis: int) -> Array:
    key = number_to_key(_widened(x))
    wanted = k.astype(jnp.int32) + k_low.astype(jnp.int32)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        lo, hi = ends
        middle = (lo & hi) + ((lo ^ hi) >> 1) + ((lo ^ hi) & 1)
        enough = jnp.sum(key >= middle, axis, dtype=jnp.int32, keepdims=True) >= wanted
        return jnp.where(enough, middle, lo), jnp.where(enough, hi, jnp.maximum(middle - 1, lo))

    # The largest key with at least k entries at or above it: the k-th largest entry.
    ends = jnp.min(key, axis, keepdims=True), jnp.max(key, axis, keepdims=True)
    kth, _ = jax.lax.fori_loop(0, jnp.iinfo(key.dtype).bits, halve, ends)
    above, ties = key > kth, key == kth
    room = wanted - jnp.sum(above, axis, dtype=jnp.int32, keepdims=True)
    y = above | (ties & (jnp.cumsum(ties, axis, dtype=jnp.int32) <= room))
    usable = jnp.sum(x != -jnp.inf, axis, dtype=jnp.int32, keepdims=True)
    valid = (k >= 0) & (k <= x.shape[axis]) & (wanted <= usable) & (k == jnp.floor(k))
    broken = jnp.any(jnp.isnan(x), axis, keepdims=True) | ~valid
    return jnp.where(broken, jnp.nan, (y & (wanted > 0)).astype(x.dtype))
