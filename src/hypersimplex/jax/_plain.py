"""The projection and its Jacobian in jnp: for every device, for slices spread over a mesh, and for export."""

from typing import Any

import jax
import jax.numpy as jnp

from hypersimplex import _formulas, _solve
from hypersimplex._search import Start, State, begin, judged, middle, moved
from hypersimplex.jax._along import Along, Array
from hypersimplex.jax._search import (
    Goal,
    above_all,
    below_all,
    find_threshold,
    key_to_number,
    kth_largest_key,
    number_to_key,
    unclipped,
)


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


def project_curve(x: Array, k: Array, k_low: Array, tau: Array, along: Along, curve: str) -> tuple[Array, Array]:
    """The same for another curve than the ramp."""

    def total(terms: Array) -> Array:
        return along.totals(terms)[0]

    def largest(entries: Array, place: Array) -> Array:
        key = kth_largest_key(number_to_key(entries), place.astype(jnp.int32), along)
        return key_to_number(key, entries.dtype)

    def find(xp: Any, curve: str, p: _solve.Problem, start: Start) -> Array:
        def sums(s: State) -> tuple[Array, ...]:
            return _solve.sums_at(jnp, curve, p.z, s.mu, s.low, total)

        def step(at: tuple[Array, State]) -> tuple[Array, State]:
            table = sums(at[1])
            return at[0] + 1, moved(jnp, judged(jnp, at[1], table, goal), table, goal)

        goal = _solve.goal(jnp, curve, p, start, float(jnp.finfo(x.dtype).eps), True)
        # What is one constant for all slices gets the slices' sharding type, which shard_map wants of a loop's state.
        first = jax.tree.map(lambda a: jnp.where(start.mu == start.mu, a, a), begin(jnp, start, ~p.inner))
        _, end = jax.lax.while_loop(
            lambda at: (at[0] < _solve.MOST_STEPS) & ~jnp.all(at[1].settled), step, (jnp.asarray(0), first)
        )
        nu: Array = end.mu + end.low
        return nu

    return _solve.solve(jnp, curve, x, k + k_low, tau, _solve.Slices(total, along.most, largest, find))


def centered(y: Array, v: Array, tau: Array, along: Along, curve: str = "ramp") -> Array:
    """Return s (v - m)/tau, with s the slopes and m the mean of v weighted by them; NaN where y is."""
    s = _formulas.slopes(jnp, curve, y, along.total)
    return jnp.where(s.active, s.each * (v - s.mean(jnp, v, along.total)) / tau, 0)


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
