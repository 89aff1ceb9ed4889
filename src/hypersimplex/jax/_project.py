"""The projection and its threshold, with derivatives of any order by one custom_jvp rule."""

from functools import partial

import jax
import jax.numpy as jnp

from hypersimplex.jax._search import (
    Along,
    Array,
    Goal,
    Point,
    Sums,
    above_all,
    begin,
    below_all,
    measured,
    most_steps,
    search,
    select,
)


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def project(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> tuple[Array, Array]:
    """Return y and mu of every slice. k + k_low and tau have x's dtype, and its shape but for 1 along the axis.

    k_low holds what x's dtype rounds away from k. Bad values give NaN.
    """
    goal, n = _goal(x, k, k_low, tau, along)
    at, sums = _search(x, goal, n, along)
    r, active, inside = sums.excess(goal), sums.active.astype(x.dtype), sums.inside
    # No entry is active but for rounding: the active entries sum to a whole number, and that is none or all of them.
    flat = (sums.active == 0) | ((goal.part == 0) & ((inside < 0.5) | (active - inside < 0.5)))
    crowded = above_all(at) & (r > 0)  # more entries are +inf than k: they share it
    valid = (k >= 0) & (k + k_low <= n) & (tau > 0) & jnp.isfinite(tau)
    broken = jnp.isnan(r) | ~valid | (below_all(at) & (r < 0))

    t = measured(x, at, tau)
    y = jnp.where(flat, (t > 0.5).astype(x.dtype), jnp.clip(t, 0, 1))
    y = jnp.where(crowded & (t > 0.5), k / jnp.maximum(sums.ones, 1), y)
    y = jnp.where(broken, jnp.nan, y)

    mu = jnp.where(flat, _middle(x, t > 0.5, tau, along), at.c + at.e * tau)
    return y, jnp.where(broken, jnp.nan, jnp.where(crowded, jnp.inf, mu))


@project.defjvp
def _project_jvp(along, primals, tangents):  # type: ignore[no-untyped-def]
    """With A = {0 < y < 1}, |A| its size and all means over it:

    dy  = (dx - mean dx)/tau - (y - mean y) dtau/tau + dk/|A|  on A, 0 elsewhere
    dmu = mean dx - mean y dtau - tau dk/|A|

    y here is the differentiable one, so differentiating the rule gives the next order.
    """
    x, k, k_low, tau = primals
    dx, dk, dk_low, dtau = tangents
    y, mu = project(x, k, k_low, tau, along)
    active = jnp.where((y > 0) & (y < 1), 1, 0 * jax.lax.stop_gradient(y))  # a NaN stays NaN
    (count,) = along.total(jax.lax.stop_gradient(active))
    count = jnp.where(count == 0, 1, count)

    def mean(v: Array) -> Array:
        return _total(active * v, along) / count

    dk = dk + dk_low
    some = _total(active, along) / count
    shared = dk * some / count
    mean_x, mean_y = mean(dx), mean(y)
    dy = active * ((dx - mean_x) / tau - (y - mean_y) * (dtau / tau) + shared)
    return (y, mu), (dy, mean_x - mean_y * dtau - tau * shared)


def _total(v: Array, along: Along) -> Array:
    total = jnp.sum(v, along.axis, keepdims=True)
    return jax.lax.psum(total, along.axis_name) if along.axis_name is not None else total


def _goal(x: Array, k: Array, k_low: Array, tau: Array, along: Along) -> tuple[Goal, Array]:
    n = x.shape[along.axis] * (jax.lax.psum(1, along.axis_name) if along.axis_name is not None else 1)
    part = (k - jnp.floor(k)) + (k_low - jnp.floor(k_low))
    carry = jnp.floor(part)
    whole = jnp.floor(k).astype(jnp.int32) + jnp.floor(k_low).astype(jnp.int32) + carry.astype(jnp.int32)
    return Goal(whole, part - carry, tau), jnp.asarray(n, x.dtype)


def _search(x: Array, goal: Goal, n: Array, along: Along) -> tuple[Point, Sums]:
    largest = float(jnp.finfo(x.dtype).max)
    start, width = begin(x, goal, n, along)
    # k of 0 and k of n need no search: every finite entry lies on one side.
    k = goal.whole.astype(x.dtype) + goal.part
    none, full = k == 0, k >= n
    end = Point(jnp.where(full, -largest, largest), jnp.where(full, jnp.asarray(-2, x.dtype), 2))
    return search(x, goal, n, select(none | full, end, start), width, along, most_steps(x.dtype))


def _middle(x: Array, ones: Array, tau: Array, along: Along) -> Array:
    """Where no entry is active every mu between two entries will do: take the middle, or the finite end."""
    finite = jnp.isfinite(x)
    one = along.least(jnp.where(finite & ones, x, jnp.inf))
    zero = along.most(jnp.where(finite & ~ones, x, -jnp.inf))
    middle = zero + (one / 2 - zero / 2 - tau / 2)
    lonely = jnp.where(zero == -jnp.inf, 0, zero)
    return jnp.where(one == jnp.inf, lonely, jnp.where(zero == -jnp.inf, one - tau, middle))
