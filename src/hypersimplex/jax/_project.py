"""The projection and its threshold, with derivatives of any order by one custom_jvp rule."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from hypersimplex.jax import _plain, _primitives
from hypersimplex.jax._along import Along, Array


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def project(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> tuple[Array, Array]:
    """Return y and mu of every slice, mu with size 1 along the axis.

    k, k_low and tau have x's dtype and rank, and are one number for each slice or one for all of them. k_low holds
    what x's dtype rounds away from k, and carries no gradient. Bad values give NaN.
    """
    if _is_spread(along):
        return _plain.project(x, k, k_low, tau, along)
    return _primitives.project(x, k, k_low, tau, along)


def _derivatives(along: Along, primals: Any, tangents: Any) -> Any:
    """With A = {0 < y < 1}, |A| its size and all means over it:

    dy  = (dx - mean dx)/tau - (y - mean y) dtau/tau + dk/|A|  on A, 0 elsewhere
    dmu = mean dx - mean y dtau - tau dk/|A|

    y here is the differentiable one, so differentiating the rule gives the next order.
    """
    x, k, k_low, tau = primals
    dx, dk, _, dtau = tangents
    y, mu = project(x, k, k_low, tau, along)
    centered = _plain.centered if _is_spread(along) else _primitives.centered
    dy, dmu = jnp.zeros_like(y), jnp.zeros_like(mu)
    # Terms of arguments that are not differentiated would cost as much as the others.
    if not isinstance(dx, SymbolicZero):
        dy, dmu = dy + centered(y, dx, tau, along), dmu + _plain.active_mean(y, dx, along)
    if not isinstance(dtau, SymbolicZero):
        dy, dmu = dy - centered(y, y, tau, along) * dtau, dmu - _plain.active_mean(y, y, along) * dtau
    if not isinstance(dk, SymbolicZero):
        # An empty A leaves mu where it is.
        shared = _plain.active_mean(y, jnp.ones_like(y), along) * dk / _plain.active_count(y, along)
        dy, dmu = dy + jnp.where(_plain.is_active(y), shared, 0 * jax.lax.stop_gradient(y)), dmu - tau * shared
    return (y, mu), (dy, dmu)


project.defjvp(_derivatives, symbolic_zeros=True)


def _is_spread(along: Along) -> bool:
    """Whether slices are spread over devices, or the values here are one device's part under shard_map."""
    return along.axis_name is not None or _primitives.within_shard_map()
