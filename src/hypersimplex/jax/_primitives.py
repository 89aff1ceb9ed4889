"""The ramp and its Jacobian as two primitives: the C++ kernel on a single CPU device, jnp everywhere else.

The other curves are jnp on every device.

Which of the two is decided when a program is lowered, since only then its devices are known. A program that is spread
over devices keeps jnp, which XLA knows how to part, and so does one that is exported, which must run without this
package. XLA calls the kernel through its foreign function interface. Derivatives of any order come from one custom_jvp
rule.
"""

import math
import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from hypersimplex import _formulas, _kernel
from hypersimplex._numpy import threads
from hypersimplex.jax import _plain
from hypersimplex.jax._along import Along, Array

_project = Primitive("hypersimplex_project")
_project.multiple_results = True
_centered = Primitive("hypersimplex_centered")


@partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def project(x: Array, k: Array, k_low: Array, tau: Array, along: Along, curve: str) -> tuple[Array, Array]:
    """Return y and mu of every slice, mu with size 1 along the axis.

    k, k_low and tau have x's dtype and rank, and are one number for each slice or one for all of them. k_low holds
    what x's dtype rounds away from k, and carries no gradient. Bad values give NaN.
    """
    if curve != "ramp":
        return _plain.project_curve(x, k, k_low, tau, along, curve)
    run = _plain.project if _is_spread(along) else _project.bind
    y, mu = run(x, k, k_low, tau, along=along)
    return y, mu


def _derivatives(along: Along, curve: str, primals: Any, tangents: Any) -> Any:
    """With s the slopes, W their sum, all means weighted by them, and y = S(t):

    dy  = s (dx - mean dx)/tau - s (t - mean t) dtau/tau + s dk/W
    dmu = mean dx - mean t dtau - tau dk/W

    y here is the differentiable one, so differentiating the rule gives the next order.
    """
    x, k, k_low, tau = primals
    dx, dk, _, dtau = tangents
    y, mu = project(x, k, k_low, tau, along, curve)
    dy, dmu = jnp.zeros_like(y), jnp.zeros_like(mu)
    s = _formulas.slopes(jnp, curve, y, along.total)
    # Terms of arguments that are not differentiated would cost as much as the others.
    if not isinstance(dx, SymbolicZero):
        dy, dmu = dy + centered(y, dx, tau, along, curve), dmu + s.mean(jnp, dx, along.total)
    if not isinstance(dtau, SymbolicZero):
        t = _formulas.places(jnp, curve, y, s.active)
        dy, dmu = dy - centered(y, t, tau, along, curve) * dtau, dmu - s.mean(jnp, t, along.total) * dtau
    if not isinstance(dk, SymbolicZero):
        # Without slopes mu stays where it is.
        shared = s.mean(jnp, jnp.ones_like(y), along.total) * dk / s.total
        dy, dmu = dy + jnp.where(s.active, s.each * shared, 0), dmu - tau * shared
    return (y, mu), (dy, dmu)


project.defjvp(_derivatives, symbolic_zeros=True)


def centered(y: Array, v: Array, tau: Array, along: Along, curve: str) -> Array:
    if curve != "ramp":
        return _plain.centered(y, v, tau, along, curve)
    run = _plain.centered if _is_spread(along) else _centered.bind
    out: Array = run(y, v, tau, along=along)
    return out


def _is_spread(along: Along) -> bool:
    """Whether slices are spread over devices, or the values here are one device's part under shard_map."""
    return along.axis_name is not None or within_shard_map()


def _kernel_project(x: Array, k: Array, k_low: Array, tau: Array, *, along: Along) -> tuple[Array, Array]:
    axis = along.axis
    folded, slices = _folded(x.shape, axis)
    out = tuple(jax.ShapeDtypeStruct(shape, x.dtype) for shape in (folded, slices))
    k = jnp.broadcast_to(k, np.broadcast_shapes(k.shape, k_low.shape))
    given = [numbers(a, x.shape, axis) for a in (k, jnp.broadcast_to(k_low, k.shape), tau)]
    y, mu = jax.ffi.ffi_call(_project.name, out)(x.reshape(folded), *given, threads=np.int32(threads()))
    return y.reshape(x.shape), mu.reshape(_without(x.shape, axis))


def _kernel_centered(y: Array, v: Array, tau: Array, *, along: Along) -> Array:
    folded, _ = _folded(y.shape, along.axis)
    call = jax.ffi.ffi_call(_centered.name, jax.ShapeDtypeStruct(folded, y.dtype))
    out = call(y.reshape(folded), v.reshape(folded), numbers(tau, y.shape, along.axis), threads=np.int32(threads()))
    return jnp.reshape(out, y.shape)


def _folded(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes in which the kernel takes an array and one number for each slice: (outer, n, inner)."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return (outer, shape[axis], inner), (outer, 1, inner)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])


def numbers(a: Array, shape: tuple[int, ...], axis: int) -> Array:
    return a.reshape(-1) if a.size == 1 else jnp.broadcast_to(a, _without(shape, axis)).reshape(-1)


def within_shard_map() -> bool:
    """Whether the values here are one device's part: there the primitives have no rules."""
    mesh = getattr(jax.sharding, "get_abstract_mesh", lambda: None)()
    return bool(getattr(mesh, "manual_axes", ()))


def _kernel_serves() -> bool:
    wanted = os.environ.get("HYPERSIMPLEX_JAX_KERNEL", "1")
    if wanted not in ("0", "1"):
        raise ValueError(f"HYPERSIMPLEX_JAX_KERNEL must be 0 or 1, got {wanted!r}")
    return wanted == "1" and kernel_is_registered()


@cache
def kernel_is_registered() -> bool:
    """Hand the kernel's functions to XLA, which must be running; False if it is too old or calls otherwise."""
    try:
        from jax import ffi

        for name, function in _kernel.xla_handlers().items():
            ffi.register_ffi_target(name, function, platform="cpu")
    except (ImportError, RuntimeError, ValueError):  # JAX before 0.5; a version of the interface that XLA refuses
        return False
    return _kernel.xla_compatible()


def _lower(on_one_cpu: Callable[..., Any], elsewhere: Callable[..., Any], many: bool) -> Callable[..., Any]:
    def rule(context: Any, *operands: Any, **settings: Any) -> Any:
        module = context.module_context
        alone = getattr(module.axis_context, "num_devices", None) == 1
        exported = getattr(module.lowering_parameters, "for_export", True)
        chosen = on_one_cpu if alone and not exported and _kernel_serves() else elsewhere
        return mlir.lower_fun(partial(chosen, **settings), multiple_results=many)(context, *operands)

    return rule


def _batched(primitive: Primitive, arrays: int, args: Any, dims: Any, **settings: Any) -> Any:
    """The batch becomes the first axis. The first `arrays` arguments need all of it, numbers may be the same."""
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    moved = [a[None] if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    whole = [jnp.broadcast_to(a, (size, *a.shape[1:])) for a in moved[:arrays]]
    if "along" in settings:
        settings["along"] = Along(settings["along"].axis + 1)
    out = primitive.bind(*whole, *moved[arrays:], **settings)
    return (out, (0,) * len(out)) if primitive.multiple_results else (out, 0)


def _centered_jvp(primals: Any, tangents: Any, *, along: Along) -> tuple[Array, Array]:
    """Linear in v; A does not move with y, but for jumps."""
    y, v, tau = primals
    _, dv, dtau = tangents
    out = _centered.bind(y, v, tau, along=along)
    dout = jnp.zeros_like(out) if isinstance(dv, ad.Zero) else _centered.bind(y, dv, tau, along=along)
    return out, dout if isinstance(dtau, ad.Zero) else dout - out * (dtau / tau)


def _centered_transpose(cotangent: Any, y: Any, v: Any, tau: Any, *, along: Along) -> Any:
    """Symmetric."""
    to_v = cotangent if isinstance(cotangent, ad.Zero) else _centered.bind(y, cotangent, tau, along=along)
    return None, to_v, None


def define(primitive: Primitive, arrays: int, kernel: Callable[..., Any], plain: Callable[..., Any]) -> None:
    """A primitive whose first `arrays` arguments have the whole shape, and whose others broadcast to it."""
    many = primitive.multiple_results
    primitive.def_impl(plain)
    mlir.register_lowering(primitive, mlir.lower_fun(plain, multiple_results=many))
    mlir.register_lowering(primitive, _lower(kernel, plain, many), platform="cpu")
    batching.primitive_batchers[primitive] = partial(_batched, primitive, arrays)


define(_project, 1, _kernel_project, _plain.project)
define(_centered, 2, _kernel_centered, _plain.centered)
_project.def_abstract_eval(lambda x, k, k_low, tau, along: (x, x.update(shape=_without(x.shape, along.axis))))
_centered.def_abstract_eval(lambda y, v, tau, along: y)
ad.primitive_jvps[_centered] = _centered_jvp
ad.primitive_transposes[_centered] = _centered_transpose
