"""The projection and its Jacobian in jnp: for every device, for slices spread over a mesh, and for export."""

import jax
import jax.numpy as jnp

from hypersimplex._search import middle
from hypersimplex.jax._along import Along, Array
from hypersimplex.jax._search import Goal, above_all, below_all, find_threshold, unclipped


def project(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> tuple[Array, Array]:
    """Return y and mu of every slice, NaN where k or tau are bad or too many entries are -inf."""
    goal, n = _goal(x, k, k_low, tau, along)
    at, sums = find_threshold(x, goal, n, along)
    r, active, inside = sums.excess(goal), sums.active.astype(x.dtype), sums.inside
    # No entry is active but for rounding: the active entries sum to a whole number, and that is none or all of them.
    flat = (sums.active == 0) | ((goal.part == 0) & ((inside < 0.5) | (active - inside < 0.5)))
    crowded = above_all(at) & (r > 0)  # more entries are +inf than k: they share it
    valid = (k >= 0) & (k + k_low <= n) & (tau > 0) & jnp.isfinite(tau)
    broken = jnp.isnan(r) | ~valid | (below_all(at) & (r < 0))

    t = unclipped(x, at, tau)
    y = jnp.where(flat, (t > 0.5).astype(x.dtype), jnp.clip(t, 0, 1))
    y = jnp.where(crowded & (t > 0.5), k / jnp.maximum(sums.ones, 1), y)
    mu = jnp.where(flat, _middle(x, t > 0.5, tau, along), at.c + at.e * tau)
    mu = jnp.where(crowded, jnp.inf, mu)
    return jnp.where(broken, jnp.nan, y), jnp.where(broken, jnp.nan, mu)


def centered(y: Array, v: Array, tau: Array, along: Along) -> Array:
    """Return (v - mean_A v)/tau on A = {0 < y < 1} and 0 elsewhere; NaN where y is."""
    active = is_active(y)
    return jnp.where(active, (v - active_mean(y, v, along)) / tau, 0 * jax.lax.stop_gradient(y))


def is_active(y: Array) -> Array:
    return (y > 0) & (y < 1)


def active_mean(y: Array, v: Array, along: Along) -> Array:
    """The mean of v over A; 0 where A is empty."""
    return along.total(jnp.where(is_active(y), v, 0)) / active_count(y, along)


def active_count(y: Array, along: Along) -> Array:
    """How many entries are active, but at least 1, since it is divided by; NaN where y is."""
    count = along.total(jnp.where(is_active(y), 1, 0 * jax.lax.stop_gradient(y)))
    return jnp.where(count == 0, 1, count)


def _goal(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> tuple[Goal, Array]:
    n = x.shape[along.axis] * (jax.lax.psum(1, along.axis_name) if along.axis_name is not None else 1)
    part = (k - jnp.floor(k)) + (k_low - jnp.floor(k_low))
    carry = jnp.floor(part)
    whole = jnp.floor(k).astype(jnp.int32) + jnp.floor(k_low).astype(jnp.int32) + carry.astype(jnp.int32)
    return Goal(whole, part - carry, tau), jnp.asarray(n, x.dtype)


def _middle(x: Array, ones: Array, tau: Array, along: Along) -> Array:
    """Where no entry is active every mu between two entries will do: take the middle, or the finite end."""
    finite = jnp.isfinite(x)
    one = along.least(jnp.where(finite & ones, x, jnp.inf))
    zero = along.most(jnp.where(finite & ~ones, x, -jnp.inf))
    return middle(jnp, zero, one, tau)  # type: ignore[no-any-return]
