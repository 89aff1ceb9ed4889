"""The running threshold of every class, as a state that the caller holds: init, update, predict."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex.jax._along import Array
from hypersimplex.jax._arguments import check_tau, converted, is_known, per_class

SPAN, LEAST = 1000, 0.1  # samples, and a batch's weight at least, as in torch


class ThresholdState(NamedTuple):
    """mu: the running threshold of every class. seen: the number of samples that it is an average of."""

    mu: Array
    seen: Array


def threshold_init(num_classes: int) -> ThresholdState:
    """Thresholds that have seen nothing yet.

    >>> threshold_init(2)
    ThresholdState(mu=Array([0., 0.], dtype=float32), seen=Array([0., 0.], dtype=float32))
    """
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer):
        raise TypeError(f"num_classes must be a whole number, got {num_classes!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    return ThresholdState(jnp.zeros(num_classes), jnp.zeros(num_classes))


def threshold_update(
    state: ThresholdState, mu: ArrayLike, k: ArrayLike, samples: ArrayLike, momentum: float | None = None
) -> ThresholdState:
    """Move each class's threshold toward this batch's. mu and k come from loss_and_threshold.

    A class without a positive or without a negative sample in the batch (mu is not finite) does not move.

    Args:
        state: from threshold_init, or from the update before.
        mu, k: a number, or one per class.
        samples: how many samples the batch has on all devices, without those that `where` leaves out.
        momentum: how far a batch moves the thresholds; 0.1 is a tenth of the way to its own. They begin as the plain
            average of all samples, and 0 keeps them so: use that to calibrate in one pass over the data. Default:
            N/1000 for a batch of N samples, at least 0.1. Then they follow about the last 1,000 samples.

    >>> state = threshold_update(threshold_init(2), jnp.array([1.0, 3.0]), k=jnp.array([5, 0]), samples=10)
    >>> threshold_update(state, jnp.array([2.0, 3.0]), k=jnp.array([5, 5]), samples=10).mu
    Array([1.5, 3. ], dtype=float32)
    """
    if momentum is not None and is_known(momentum) and not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be between 0 and 1 or None, got {momentum}")
    if is_known(samples) and not np.all(np.asarray(samples) >= 0):
        raise ValueError(f"samples must be at least 0, got {samples}")
    old, classes = jnp.asarray(state.mu), jnp.shape(state.mu)[-1]
    new, counts = (jnp.asarray(per_class(name, value, classes)) for name, value in (("mu", mu), ("k", k)))
    size = jnp.asarray(samples, state.seen.dtype)
    moves = (counts > 0) & (counts < size) & jnp.isfinite(new)
    seen = state.seen + moves * size
    # The plain average, until the least weight takes over.
    least = jnp.clip(size / SPAN, LEAST, 1) if momentum is None else momentum
    rate = jnp.maximum(size / jnp.maximum(seen, 1), least)
    step = rate * (jnp.where(moves, new, old) - old)
    return ThresholdState((old + step).astype(old.dtype), seen)


def scores(logits: ArrayLike, state: ThresholdState, tau: ArrayLike = 1.0) -> Array:
    """Return (logits - mu)/tau, on which every decision is based.

    >>> scores(jnp.array([[2.0, 2.0]]), ThresholdState(jnp.array([0.5, 1.0]), jnp.array([1, 1])))
    Array([[1.5, 1. ]], dtype=float32)
    """
    x, classes = converted("logits", logits), jnp.shape(state.mu)[-1]
    if not (x.shape[-1:] == (classes,) or (classes == 1 and x.ndim < 2)):
        raise ValueError(f"logits must have {classes} classes, got shape {x.shape}")
    if is_known(state.seen) and not np.any(np.asarray(state.seen)):
        raise RuntimeError("thresholds are not known yet: call threshold_update, or load them")
    each = per_class("tau", tau, classes)
    check_tau(each)
    return (x - state.mu) / jnp.asarray(each)


def predict(logits: ArrayLike, state: ThresholdState, tau: ArrayLike = 1.0, *, multi_label: bool = False) -> Array:
    """Return the class with the largest score. For one class, or with multi_label, return which scores exceed 1/2.

    >>> state = ThresholdState(jnp.array([0.0, 3.0]), jnp.array([1, 1]))
    >>> predict(jnp.array([[1.0, 2.0], [1.0, 5.0]]), state)
    Array([0, 1], dtype=int32)
    >>> predict(jnp.array([[1.0, 2.0], [1.0, 5.0]]), state, multi_label=True)
    Array([[ True, False],
           [ True,  True]], dtype=bool)
    """
    s = scores(logits, state, tau)
    if multi_label or jnp.shape(state.mu)[-1] == 1:
        return s > 0.5
    return jnp.argmax(s, -1)
