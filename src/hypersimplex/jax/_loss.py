"""The HyperSimplex loss: every class's column of the batch is projected, and compared with the labels."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from hypersimplex import _checks
from hypersimplex.jax._along import Along, Array
from hypersimplex.jax._arguments import converted, first_outside, floating, is_known, per_class, widened
from hypersimplex.jax._operator import soft_topk, solve


def hypersimplex_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    k: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    tau: ArrayLike = 1.0,
    axis_name: Any = None,
) -> Array:
    """Project every class's logits over the batch so that they sum to k, and compare them with the labels.

    Let p be the projection of column c, soft_binary_argmax(logits[:, c], k_c, tau). The loss of an example is one half
    of the sum over the classes of (p - onehot)^2. The result has one value per example, as in optax.

    Args:
        logits: (..., classes), where all leading axes are the batch; or (examples,) for a binary problem.
        labels: class indices of the batch's shape, or an array of the logits' shape: 0 and 1, or soft labels.
        where: which examples count, of the batch's shape. An example that does not count changes nothing, not even k,
            and its own loss is 0.
        k: how many examples each class has: a number, or one per class. Default: the sum of the labels.
        prior: the same as a share of the batch.
        tau: temperature: a number, or one per class.
        axis_name: under shard_map or pmap, the mesh axis over which the batch is spread.

    Labels out of range raise an error if they are known when the function is called. Under jit their loss is NaN.

    >>> hypersimplex_loss(jnp.array([2.0, 1.5, 1.0]), jnp.array([0, 1, 0]))
    Array([0.28125, 0.28125, 0.     ], dtype=float32)
    """
    batch = _prepare(logits, labels, where, k, prior, tau, axis_name)
    return _losses(batch, soft_topk(batch.logits, batch.k, batch.tau, axis=0, axis_name=axis_name))


def loss_and_threshold(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    k: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    tau: ArrayLike = 1.0,
    axis_name: Any = None,
) -> tuple[Array, tuple[Array, Array]]:
    """Return hypersimplex_loss together with the threshold mu and the k of each class, for threshold_update.

    A class without a positive sample (k = 0) has no threshold in this batch, and its mu is inf. A class without a
    negative sample (k = the number of samples) has none either, and its mu is -inf.

    >>> logits, labels = jnp.array([[2.0, 0.0], [0.5, 1.0], [0.0, 0.5]]), jnp.array([0, 1, 1])
    >>> losses, (mu, k) = loss_and_threshold(logits, labels)
    >>> mu, k
    (Array([ 0.75, -0.25], dtype=float32), Array([1, 2], dtype=int32))
    """
    batch = _prepare(logits, labels, where, k, prior, tau, axis_name)
    p, mu = solve(batch.logits, batch.k, batch.tau, 0, axis_name, "y", "mu")
    counts, mu = jax.lax.stop_gradient((jnp.broadcast_to(batch.k, mu.shape), mu))
    mu = jnp.where(counts == batch.size, -jnp.inf, mu)
    return _losses(batch, p), (jnp.where(counts == 0, jnp.inf, mu), counts)


class _Batch(NamedTuple):
    logits: Array  # (examples, classes), or (examples,); -inf where an example does not count
    labels: Array  # of the logits' shape; 0 where one is out of range or does not count
    valid: Array  # whether an example's labels are in range
    kept: Array | None
    size: Array
    k: Any
    tau: Any
    shape: tuple[int, ...]


def _losses(batch: _Batch, p: Array) -> Array:
    wide = widened(p)
    squares = jnp.square(wide - batch.labels.astype(wide.dtype))
    losses = squares if p.ndim == 1 else jnp.sum(squares, -1)
    losses = jnp.where(batch.valid, losses / 2, jnp.nan)
    if batch.kept is not None:
        losses = jnp.where(batch.kept, losses, 0)
    return losses.astype(p.dtype).reshape(batch.shape)


def _prepare(
    logits: ArrayLike, labels: ArrayLike, where: ArrayLike | None, k: Any, prior: Any, tau: Any, axis_name: Any
) -> _Batch:
    x, given = floating(logits, "logits"), converted("labels", labels)
    if x.ndim == 0:
        raise ValueError("logits must have at least one dimension, got a scalar")
    if k is not None and prior is not None:
        raise _checks.both_given(k, prior)
    shape = x.shape if x.ndim == 1 else x.shape[:-1]
    if given.shape != x.shape and given.shape != shape:
        raise ValueError(
            f"labels must have the shape of logits {x.shape}, or that shape without its last axis, got {given.shape}"
        )
    indices = given.shape != x.shape
    if indices and not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(f"labels must be integer where they hold class indices, got {given.dtype}")
    x = x.reshape(math.prod(shape), *x.shape[max(1, x.ndim - 1) :])
    given = given.reshape(x.shape[: given.ndim - len(shape) + 1])
    kept = _kept(where, shape)
    k, prior, tau = (_number(name, value, x) for name, value in (("k", k), ("prior", prior), ("tau", tau)))
    _check_labels(given, kept, x.shape[-1] if indices else None)
    _check_numbers(k, prior, kept, x.shape[0], axis_name)
    if kept is not None:
        x = jnp.where(_over(x, kept), x, -jnp.inf)
    given, valid = _in_range(given, kept, x, indices)
    # Sums over the batch are sums over all its devices; so is its size.
    along = Along(0, axis_name)
    size = along.everywhere(jnp.asarray(x.shape[0]) if kept is None else jnp.sum(kept, dtype=jnp.int32))
    if prior is not None:
        share = jnp.asarray(prior)
        k = size * share.astype(jnp.promote_types(share.dtype, jnp.float32))
    elif k is None:
        k = _counts(given, size, along)
    return _Batch(x, given, valid, kept, size, k, tau, shape)


def _number(name: str, value: Any, x: Array) -> Any:
    """k, prior or tau, shaped to meet the columns of x."""
    if value is None:
        return None
    array = per_class(name, value, x.shape[1] if x.ndim == 2 else 1)
    return array if x.ndim == 2 else array.reshape(())


def _over(x: Array, kept: Array) -> Array:
    return kept.reshape(-1, *[1] * (x.ndim - 1))


def _in_range(labels: Array, kept: Array | None, x: Array, indices: bool) -> tuple[Array, Array]:
    """The labels as dense ones, 0 for what does not count, and which examples' labels are in range."""
    if indices:
        hits = labels[:, None] == jnp.arange(x.shape[-1])
        return hits if kept is None else hits & _over(x, kept), jnp.any(hits, -1)
    good = (labels >= 0) & (labels <= 1)
    valid = good if x.ndim == 1 else jnp.all(good, -1)
    return jnp.where(good if kept is None else good & _over(x, kept), labels, 0), valid


def _kept(where: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    if where is None:
        return None
    kept = converted("where", where)
    if kept.dtype != bool:
        raise TypeError(f"where must be boolean, got {kept.dtype}")
    if kept.shape != shape:
        raise ValueError(f"where must have the shape of the batch {shape}, got {kept.shape}")
    return kept.reshape(-1)


def _check_labels(labels: Array, kept: Array | None, classes: int | None) -> None:
    if not is_known(labels) or (kept is not None and not is_known(kept)) or not labels.size:
        return
    values = np.asarray(labels) if kept is None else np.asarray(labels)[np.asarray(kept)]
    top = 1 if classes is None else classes - 1
    for bad in first_outside(values, top):
        dense = " where they are dense" if classes is None else ""
        raise ValueError(f"labels must be between 0 and {top}{dense}, got {bad}")


def _check_numbers(k: Any, prior: Any, kept: Array | None, samples: int, axis_name: Any) -> None:
    if prior is not None and is_known(prior):
        for bad in first_outside(prior, 1):
            raise ValueError(f"prior must be between 0 and 1, got {bad}")
    if k is not None and is_known(k) and axis_name is None and (kept is None or is_known(kept)):
        samples = samples if kept is None else int(kept.sum())
        for bad in first_outside(k, samples):
            raise _checks.bad_count(float(bad), samples)


def _counts(labels: Array, size: Array, along: Along) -> Array:
    """How much of each class the batch holds."""
    if not jnp.issubdtype(labels.dtype, jnp.floating):
        counts: Array = along.everywhere(jnp.sum(labels, 0, dtype=jnp.int32))
        return counts
    # Rounding may lift a sum of ones above their number.
    return jnp.minimum(along.everywhere(jnp.sum(widened(labels), 0)), size)
