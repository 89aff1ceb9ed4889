"""The box section and its Jacobian as two more primitives of `_primitives`; slices lie along the last axis."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad

from hypersimplex import _box_formula
from hypersimplex._numpy import threads
from hypersimplex.jax._along import Array
from hypersimplex.jax._box_search import solve
from hypersimplex.jax._primitives import define, numbers, within_shard_map

_box = Primitive("hypersimplex_box")
_box.multiple_results = True
_centered = Primitive("hypersimplex_box_centered")
_plain_centered = partial(_box_formula.centered, jnp)


def box(
    x: Array, total: Array, lower: Array, upper: Array, weight: Array, tau: Array, at_most: bool
) -> tuple[Array, Array]:
    """Return y and mu of every slice. All have the rank of x, total and tau a size of 1 along the last axis."""
    run: Any = solve if within_shard_map() else _box.bind
    y, mu = run(x, total, lower, upper, weight, tau, at_most=at_most)
    return y, mu


def centered(v: Array, y: Array, mu: Array, given: Sequence[Array], at_most: bool) -> Array:
    """`_box_formula.centered`. given: lower, upper, weight and tau."""
    run: Any = _plain_centered if within_shard_map() else _centered.bind
    out: Array = run(v, y, mu, *given, at_most=at_most)
    return out


def _kernel_box(
    x: Array, total: Array, lower: Array, upper: Array, weight: Array, tau: Array, *, at_most: bool
) -> tuple[Array, Array]:
    rows = (math.prod(x.shape[:-1]), x.shape[-1], 1)
    out = [jax.ShapeDtypeStruct(shape, x.dtype) for shape in (rows, (rows[0], 1, 1))]
    given = [numbers(a, x.shape, x.ndim - 1) for a in (total, tau)]
    entries = [_entries(a, x.shape) for a in (lower, upper, weight)]
    y, mu = jax.ffi.ffi_call(_box.name, out)(x.reshape(rows), *given, *entries, **_attributes(at_most))
    return y.reshape(x.shape), mu.reshape(*x.shape[:-1], 1)


def _kernel_centered(
    v: Array, y: Array, mu: Array, lower: Array, upper: Array, weight: Array, tau: Array, *, at_most: bool
) -> Array:
    rows = (math.prod(y.shape[:-1]), y.shape[-1], 1)
    call = jax.ffi.ffi_call(_centered.name, jax.ShapeDtypeStruct(rows, y.dtype))
    given = [jnp.broadcast_to(mu, (*y.shape[:-1], 1)).reshape(-1), numbers(tau, y.shape, y.ndim - 1)]
    entries = [_entries(a, y.shape) for a in (lower, upper, weight)]
    out = call(v.reshape(rows), y.reshape(rows), *given, *entries, **_attributes(at_most))
    return jnp.reshape(out, y.shape)


def _attributes(at_most: bool) -> dict[str, Any]:
    return {"at_most": np.int32(at_most), "threads": np.int32(threads())}


def _entries(a: Array, shape: tuple[int, ...]) -> Array:
    """Numbers for the entries of rows: of all rows or of one, of all entries or of one."""
    if math.prod(a.shape[:-1]) != 1:
        a = jnp.broadcast_to(a, (*shape[:-1], a.shape[-1]))
    return a.reshape(-1, a.shape[-1])


def _centered_jvp(primals: Any, tangents: Any, *, at_most: bool) -> tuple[Array, Array]:
    """Linear in v; the free entries do not move, but for jumps."""
    v, *fixed, weight, tau = primals
    dv, *_, dweight, dtau = tangents
    run = partial(_centered.bind, at_most=at_most)
    out = run(*primals)
    dout = jnp.zeros_like(out) if isinstance(dv, ad.Zero) else run(dv, *fixed, weight, tau)
    if isinstance(dweight, ad.Zero) and isinstance(dtau, ad.Zero):
        return out, dout
    changes = tuple(ad.instantiate_zeros(t) for t in (dweight, dtau))
    by_numbers = partial(_plain_centered, v, *fixed, at_most=at_most)
    return out, dout + jax.jvp(by_numbers, (weight, tau), changes)[1]


def _centered_transpose(cotangent: Any, v: Any, *rest: Any, at_most: bool) -> Any:
    """Symmetric."""
    to_v = cotangent if isinstance(cotangent, ad.Zero) else _centered.bind(cotangent, *rest, at_most=at_most)
    return to_v, *[None] * len(rest)


define(_box, 1, _kernel_box, solve)
define(_centered, 2, _kernel_centered, _plain_centered)
_box.def_abstract_eval(lambda x, *rest, at_most: (x, x.update(shape=(*x.shape[:-1], 1))))
_centered.def_abstract_eval(lambda v, y, *rest, at_most: y)
ad.primitive_jvps[_centered] = _centered_jvp
ad.primitive_transposes[_centered] = _centered_transpose
