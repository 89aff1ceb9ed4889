"""Infinities, NaN and wrong arguments of the boosting objective."""

import numpy as np
import pytest

from hypersimplex import reference
from hypersimplex.boosting import HyperSimplexObjective, LightGBMMetric, XGBoostMetric, _columns, _thresholds

INF = np.inf


@pytest.mark.parametrize(
    ("y", "scores"),
    [([0, 0, 0], [1.0, 2.0, 3.0]), ([1, 1, 1], [1.0, 2.0, 3.0]), ([1], [0.3]), ([0, 1], [0.0, 50.0])],
    ids=["no positive", "no negative", "one row", "separated"],
)
def test_nothing_to_learn_gives_no_gradient(y, scores):
    objective = HyperSimplexObjective()
    grad, hess = objective(y, np.array(scores))
    assert not grad.any()
    assert (hess > 0).all()
    k = float(sum(y))
    assert objective.threshold == pytest.approx([float(reference.threshold(scores, k))])


def test_equal_scores_are_shared():
    grad, hess = HyperSimplexObjective()(np.array([0, 0, 1, 1, 1]), np.zeros(5))
    np.testing.assert_allclose(grad, np.array([0.6, 0.6, -0.4, -0.4, -0.4]), rtol=1e-6)
    assert (hess == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scores", [[0.0, 2.0, 3.0, 9.0], [5.0, 0.1, 0.3, 0.2], [4.0, 9.0, 0.0, 2.0]])
def test_rows_of_weight_zero_are_not_there(dtype, scores):
    """Also where the classes are separated, and the threshold is the middle between the nearest scores of two."""
    y, w, scores = np.array([0, 1, 0, 1]), np.array([1.0, 0.0, 0.0, 2.0]), np.array(scores, dtype)
    objective, without = HyperSimplexObjective(0.5), HyperSimplexObjective(0.5)
    grad, _ = objective(y, scores, w)
    expect, _ = without(y[w > 0], scores[w > 0], w[w > 0])
    np.testing.assert_allclose(objective.threshold, without.threshold, rtol=1e-6)
    np.testing.assert_allclose(grad[w > 0], expect, atol=1e-6)
    assert not grad[w == 0].any()
    assert objective.loss(y, scores, w) == pytest.approx(without.loss(y[w > 0], scores[w > 0], w[w > 0]))


def test_no_rows():
    grad, hess = HyperSimplexObjective()(np.zeros(0), np.zeros(0))
    assert grad.shape == hess.shape == (0,)


def test_infinite_scores_are_decided():
    y, scores = np.array([1, 0, 1, 0, 1]), np.array([np.inf, -np.inf, 0.2, 0.1, 0.4])
    objective = HyperSimplexObjective()
    grad, _ = objective(y, scores)
    assert grad[0] == grad[1] == 0
    assert objective.threshold == pytest.approx([float(reference.threshold(scores, 3))])


def test_infinite_scores_the_sample_sees_alone():
    n = 1 << 17
    scores = np.random.default_rng(0).normal(size=n)
    scores[::2] = np.inf
    objective = HyperSimplexObjective(0.1, prior=0.6)
    objective(np.zeros(n), scores)
    assert np.clip((scores - objective.threshold) / 0.1, 0, 1).sum() == pytest.approx(0.6 * n, rel=1e-9)


@pytest.mark.parametrize("n", [4, 1 << 17])
@pytest.mark.parametrize(
    ("y", "scores", "message"),
    [
        ([0, 1, 0, 1], [INF, INF, INF, INF], r"y_pred must be \+inf in rows of weight k = 2 at most, got weight 4"),
        ([0, 1, 0, 0], [INF, INF, 1.0, 0.0], r"y_pred must be \+inf in rows of weight k = 1 at most, got weight 2"),
        ([0, 0, 0, 0], [INF, 2.0, 1.0, 0.0], r"y_pred must be \+inf in rows of weight k = 0 at most, got weight 1"),
        ([0, 1, 0, 1], [-INF, -INF, -INF, 1.0], "k must be at most 1, the weight of the rows .* not -inf, got 2"),
        ([1, 1, 1, 1], [-INF, 2.0, 1.0, 0.0], "k must be at most 3, the weight of the rows .* not -inf, got 4"),
    ],
)
def test_infinite_scores_that_leave_no_projection(n, y, scores, message):
    if n > 4:  # the same with a weight of four in all
        y, scores, weights = np.tile(y, n // 4), np.tile(scores, n // 4), np.full(n, 4 / n)
    else:
        weights = None
    for call in (HyperSimplexObjective(), HyperSimplexObjective().loss):
        with pytest.raises(ValueError, match=message):
            call(y, np.array(scores), weights)


@pytest.mark.parametrize("seed", range(20))
def test_infinities_that_weigh_k_but_for_rounding(seed, monkeypatch):
    monkeypatch.setattr(_thresholds, "_check_infinite", None)  # there is nothing to suspect
    rng = np.random.default_rng(seed)
    y, weights, scores = rng.integers(0, 2, 1001), 10 ** rng.uniform(-9, 9, 1001), rng.normal(size=1001)
    objective = HyperSimplexObjective()
    for certain in (np.where(y == 1, np.inf, scores), np.where(y == 0, -np.inf, scores)):
        assert objective.loss(y, certain, weights) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("y", [[0, 0], [0, 1], [1, 1]])
def test_nan_is_noticed_whatever_the_labels(y):
    for call in (HyperSimplexObjective(), HyperSimplexObjective().loss, HyperSimplexObjective().calibrate):
        with pytest.raises(ValueError, match="y_pred must not be NaN, got NaN in column 0"):
            call(y, np.array([np.nan, 1.0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HyperSimplexObjective("a"), "tau must be a number or an array of numbers, got str"),
        (lambda: HyperSimplexObjective(None), "tau must be a number or an array of numbers, got NoneType"),
        (lambda: HyperSimplexObjective([[1.0], [1.0, 2.0]]), "tau must be a number or an array of numbers, got list"),
        (lambda: HyperSimplexObjective(k="3"), "k must be a number or an array of numbers, got str"),
        (lambda: HyperSimplexObjective(prior=[None]), "prior must be a number or an array of numbers, got list"),
        (lambda: HyperSimplexObjective()([0, 1], [0, 1]), "y_pred must be floating point, got int64"),
    ],
)
def test_types_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HyperSimplexObjective(0.0), "tau must be positive, got 0.0"),
        (lambda: HyperSimplexObjective([1.0, np.inf]), "tau must be positive and finite, got inf"),
        (lambda: HyperSimplexObjective(k=1, prior=0.5), "k and prior must not both be given, got k=1 and prior=0.5"),
        (lambda: HyperSimplexObjective(hessian="one"), "hessian must be 'gauss-newton' or 'ones', got 'one'"),
        (lambda: HyperSimplexObjective()([0, 2], np.zeros(2)), "y_true must be between 0 and 1, got 2.0 in row 1"),
        (lambda: HyperSimplexObjective()([0, np.nan], np.zeros(2)), "y_true must be between 0 and 1, got nan in row 1"),
        (
            lambda: HyperSimplexObjective()([0, 1.5], np.zeros((2, 3))),
            "y_true must be a whole number between 0 and 2, got 1.5 in row 1",
        ),
        (
            lambda: HyperSimplexObjective()([0, 1], np.zeros(2), [1, -1]),
            "sample_weight must be finite and not negative, got -1.0 in row 1",
        ),
        (lambda: HyperSimplexObjective()([0, 1], np.zeros(3)), "y_true must have one number for each of the 3 rows"),
        (lambda: HyperSimplexObjective()([0, 1], np.array([0, np.nan])), "y_pred must not be NaN, got NaN in column 0"),
        (lambda: HyperSimplexObjective()([0, 1], np.zeros((2, 1, 1))), "y_pred must have shape"),
        (
            lambda: HyperSimplexObjective(k=3)([0, 1], np.zeros(2)),
            "k must be between 0 and 2 .the weight of all rows., got 3",
        ),
        (lambda: HyperSimplexObjective(prior=2), "prior must be between 0 and 1, got 2.0"),
        (lambda: HyperSimplexObjective(prior=[0.5, np.nan]), "prior must be between 0 and 1, got nan"),
        (lambda: HyperSimplexObjective(k=-1), "k must not be negative, got -1"),
        (lambda: HyperSimplexObjective([1.0, 2.0])([0, 1], np.zeros(2)), r"tau must be a number or have shape \(1,\)"),
        (lambda: LightGBMMetric(HyperSimplexObjective(), "auc"), "name must be 'error' or 'loss', got 'auc'"),
    ],
)
def test_errors_name_the_rule(call, message):
    with pytest.raises(ValueError, match=message):
        call()


NO_LABELS = {
    "call": lambda objective, y: objective(y, np.zeros(10)),
    "calibrate": lambda objective, y: objective.calibrate(y, np.zeros(10)),
    "loss": lambda objective, y: objective.loss(y, np.zeros(10)),
    "error rate": lambda objective, y: objective.error_rate(y, np.zeros(10)),
    "LightGBM's loss": lambda objective, y: LightGBMMetric(objective, "loss")(y, np.zeros(10)),
    "XGBoost's error": lambda objective, y: XGBoostMetric(objective)(y, np.zeros(10)),
}


@pytest.mark.parametrize("call", NO_LABELS.values(), ids=NO_LABELS)
@pytest.mark.parametrize(
    ("y", "got"), [(None, "None"), (np.zeros((10, 1)), r"shape \(10, 1\)"), (np.zeros(9), r"shape \(9,\)")]
)
def test_labels_that_are_not_there(call, y, got):
    objective = HyperSimplexObjective(prior=0.3).calibrate(np.zeros(10), np.arange(10.0))
    with pytest.raises(ValueError, match=f"y_true must have one number for each of the 10 rows of y_pred, got {got}"):
        call(objective, y)


def test_the_kernel_is_handed_only_what_it_can_read():
    columns = _columns.Columns(np.zeros((4, 3)), np.zeros(4), None)
    good = {"mu": np.zeros(3), "tau": np.ones(3), "skip": np.zeros(3, bool), "sums": np.zeros((3, 5))}
    columns.run(_columns.SUMS, **good)
    for name, bad in [
        ("mu", None),
        ("mu", np.zeros(2)),
        ("tau", np.ones(3, np.float32)),
        ("tau", np.ones(6)[::2]),
        ("skip", np.zeros(3)),
        ("sums", np.zeros((3, 4))),
        ("sums", np.zeros((5, 3)).T),
    ]:
        with pytest.raises(ValueError, match=f"{name} must be a contiguous"):
            columns.run(_columns.SUMS, **{**good, name: bad})
