"""The projection of many slices at once in float64, by sorted breakpoints: the sweep's yardstick.

Another method than the kernel's, and fast enough for slices of 10^5. `test_sweep.py` checks it against
`hypersimplex.reference`.
"""

import numpy as np

Array = np.ndarray


def project(x: Array, k: Array, tau: Array) -> tuple[Array, Array]:
    """y and mu of every row of x, (slices, n) without NaN, for k and tau of shape (slices,).

    At least as many entries as k must be above -inf, and at most k of them may be +inf.
    """
    x = x.astype(np.float64)
    if x.shape[1] == 0:  # every sample of a batch was ignored
        return x, np.zeros(len(x))
    falling = -np.sort(-x, axis=1)
    edge = np.clip(np.ceil(k).astype(int) - 1, 0, None)[:, None]
    above = np.take_along_axis(falling, edge, 1)  # the ceil(k)-th largest: mu is at most tau below it
    below = np.take_along_axis(np.pad(falling, ((0, 0), (0, 1)), constant_values=-np.inf), edge + 1, 1)
    none = k[:, None] == 0
    whole = (k == np.floor(k))[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        flat = none | (whole & ((above - below >= tau[:, None]) | np.isposinf(above)))
        upper, lower = np.where(none, np.inf, above - tau[:, None]), np.where(none, above, below)
        y, mu = _between(x, k, tau, np.where(flat, 0.0, above))
        y = np.where(flat, ~none & (x >= above), y)
        mu = np.where(flat[:, 0], _middle(lower, upper)[:, 0], mu)
    return y, mu


def _middle(lower: Array, upper: Array) -> Array:
    """Any mu from lower to upper will do: the middle, or the finite end."""
    middle = np.where(np.isfinite(lower), np.where(np.isfinite(upper), lower / 2 + upper / 2, lower), upper)
    return np.where(np.isfinite(middle), middle, 0.0)


def _between(x: Array, k: Array, tau: Array, origin: Array) -> tuple[Array, Array]:
    """z = (x - origin)/tau, and -1 <= nu <= 0 with sum clip(z - nu, 0, 1) = k.

    Every entry has one breakpoint in that range: at z <= 0 it becomes 0, at z > 0 it leaves 1 at z - 1.
    """
    z = np.clip((x - origin) / tau[:, None], -1.0, 1.0)
    rising = z > 0
    breakpoints = np.where(rising, z - 1, z)
    order = np.argsort(breakpoints, axis=1)
    at, kinds = np.take_along_axis(breakpoints, order, 1), np.take_along_axis(rising, order, 1)
    # Active entries right of each breakpoint: those that have left 1, and those that have not yet become 0.
    active = (~rising).sum(1, keepdims=True) + np.cumsum(np.where(kinds, 1, -1), axis=1)
    start = np.where(rising, 1.0, z + 1).sum(1, keepdims=True)
    steps = np.diff(at, axis=1, prepend=-1.0)
    before = np.concatenate([(~rising).sum(1, keepdims=True), active[:, :-1]], axis=1)
    values = start - np.cumsum(steps * before, axis=1)  # of the sum, at each breakpoint
    last = np.clip((values >= k[:, None]).sum(1, keepdims=True) - 1, -1, None)
    left = np.where(last >= 0, np.take_along_axis(at, np.maximum(last, 0), 1), -1.0)
    ends = np.concatenate([at, np.zeros((len(z), 1))], axis=1)
    inside = (left + np.take_along_axis(ends, last + 1, 1)) / 2
    ones, on = z >= inside + 1, (z > inside) & (z < inside + 1)
    number = np.maximum(on.sum(1), 1)
    nu = (np.where(on, z, 0.0).sum(1) + ones.sum(1) - k) / number
    return np.clip(z - nu[:, None], 0.0, 1.0), origin[:, 0] + tau * nu


def pull_back(y: Array, v: Array, tau: Array) -> tuple[Array, Array, Array]:
    """The gradients to x, k and tau of sum(v * y), from the rows of y alone."""
    on = (y > 0) & (y < 1)
    number = np.maximum(on.sum(1), 1)
    mean = np.where(on, v, 0.0).sum(1) / number
    mean_y = np.where(on, y, 0.0).sum(1) / number
    to_x = np.where(on, (v - mean[:, None]) / tau[:, None], 0.0)
    to_tau = -np.where(on, v * (y - mean_y[:, None]), 0.0).sum(1) / tau
    return to_x, mean, to_tau


def largest(x: Array, k: Array) -> Array:
    """Ones at the k largest of every row, ties to the lower index."""
    rank = np.empty(x.shape, np.int64)
    np.put_along_axis(rank, np.argsort(-x, axis=1, kind="stable"), np.arange(x.shape[1])[None], 1)
    return (rank < k[:, None]).astype(np.float64)


def loss(x: Array, target: Array, k: Array, tau: Array, weight: Array) -> tuple[float, Array, Array]:
    """The loss and its gradient for rows of logits, a class a row, and (x - mu)/tau, not clipped."""
    p, mu = project(x, k, tau)
    error = p - target
    to_x = pull_back(p, error, tau)[0] * weight[:, None]
    place = (x - mu[:, None]) / tau[:, None]
    return float((weight[:, None] * error**2).sum() / 2), to_x, place
