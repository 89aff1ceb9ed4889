"""Problems for the boosting tests, and the objective written out in plain NumPy."""

import numpy as np

from hypersimplex import reference


def data(n=600, classes=2, seed=0, features=6):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features))
    signal = x[:, :classes] if classes > 2 else np.stack([np.zeros(n), x[:, 0] + x[:, 1] * x[:, 2]], 1)
    return x, (signal + rng.normal(size=signal.shape) * 0.7).argmax(1)


def labels_and_scores(n, classes, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n if classes == 1 else (n, classes)) * spread
    return rng.integers(0, max(classes, 2), n), scores


def one_hot(y, scores):
    return y.astype(float) if scores.ndim == 1 else (y[:, None] == np.arange(scores.shape[1])).astype(float)


def expected(y, scores, tau=1.0, k=None):
    """Projection, loss, gradient and active rows without weights, by the reference."""
    target = one_hot(y, scores)
    k = target.sum(0) if k is None else k
    p = reference.soft_binary_argmax(scores, k, tau, axis=0)
    gradient = reference.vjp(p, p - target, tau, axis=0)[0]
    return p, float(((p - target) ** 2).sum() / 2), gradient, (p > 0) & (p < 1)


def assert_same_trees(first, second, x, scale=1.0):
    """Two LightGBM models that send every row to the same leaves, whose values differ by a factor."""
    ours, theirs = (model.predict(x, pred_leaf=True) for model in (first, second))
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (model.trees_to_dataframe()["value"] for model in (first, second))
    np.testing.assert_allclose(ours * scale, theirs, rtol=1e-4, atol=1e-6 * scale)
