"""The running threshold of every class, as a state that the caller holds: init, update, predict."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike

from hypersimplex.jax._search import Array


class ThresholdState(NamedTuple):
    """mu: the running threshold of every class. seen: how many batches moved it."""

    mu: Array
    seen: Array


def threshold_init(num_classes: int) -> ThresholdState:
    """Thresholds that have seen nothing yet.

    >>> threshold_init(2)
    ThresholdState(mu=Array([0., 0.], dtype=float32), seen=Array([0, 0], dtype=int32))
    """
    return ThresholdState(jnp.zeros(num_classes), jnp.zeros(num_classes, jnp.int32))


def threshold_update(
    state: ThresholdState, mu: ArrayLike, k: ArrayLike, momentum: float | None = 0.1
) -> ThresholdState:
    """Move each class's threshold towards this batch's, mu; a class absent from the batch (k = 0) does not move.

    The first batch that holds a class sets its threshold. momentum=None averages all batches alike: the way to
    calibrate with a full pass over the data.

    >>> state = threshold_update(threshold_init(2), jnp.array([1.0, 3.0]), k=jnp.array([5, 0]))
    >>> threshold_update(state, jnp.array([2.0, 3.0]), k=jnp.array([5, 5])).mu
    Array([1.1, 3. ], dtype=float32)
    """
    mu = jnp.asarray(mu, state.mu.dtype)
    moves = (jnp.asarray(k) > 0) & jnp.isfinite(mu)
    seen = state.seen + moves
    average = 1 / jnp.maximum(seen, 1)
    share = average if momentum is None else jnp.where(seen == 1, 1.0, momentum)
    # Not mu + share (mu - mu): a threshold that is not finite must not touch the old one.
    moved = (1 - share) * state.mu + share * jnp.where(moves, mu, 0)
    return ThresholdState(jnp.where(moves, moved, state.mu).astype(state.mu.dtype), seen)


def scores(logits: ArrayLike, state: ThresholdState, tau: ArrayLike = 1.0) -> Array:
    """Return (logits - mu)/tau: what every decision is made from.

    >>> scores(jnp.array([[2.0, 2.0]]), ThresholdState(jnp.array([0.5, 1.0]), jnp.array([1, 1])))
    Array([[1.5, 1. ]], dtype=float32)
    """
    return (jnp.asarray(logits) - state.mu) / jnp.asarray(tau)


def predict(logits: ArrayLike, state: ThresholdState, tau: ArrayLike = 1.0, *, multi_label: bool = False) -> Array:
    """Return the class with the largest score; or, for one class or multi_label, which scores exceed 1/2.

    >>> state = ThresholdState(jnp.array([0.0, 3.0]), jnp.array([1, 1]))
    >>> predict(jnp.array([[1.0, 2.0], [1.0, 5.0]]), state)
    Array([0, 1], dtype=int32)
    >>> predict(jnp.array([[1.0, 2.0], [1.0, 5.0]]), state, multi_label=True)
    Array([[ True, False],
           [ True,  True]], dtype=bool)
    """
    s = scores(logits, state, tau)
    if multi_label or state.mu.shape[-1] == 1:
        return s > 0.5
    return jnp.argmax(s, -1)
