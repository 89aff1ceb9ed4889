"""The objective by itself: NumPy alone, no booster."""

import copy
import doctest
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypersimplex import boosting, reference
from hypersimplex.boosting import HyperSimplexObjective, XGBoostMetric, _columns, _thresholds
from tests.boosting.problems import expected, labels_and_scores, one_hot

SHAPES = pytest.mark.parametrize("classes", [1, 2, 3, 7])


@SHAPES
@pytest.mark.parametrize("tau", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_is_the_formula(classes, tau, dtype):
    y, scores = labels_and_scores(203, classes)
    scores = scores.astype(dtype)
    _, _, gradient, active = expected(y, scores, tau)
    grad, hess = HyperSimplexObjective(tau)(y, scores)
    np.testing.assert_allclose(grad, gradient, rtol=1e-5, atol=1e-6 / tau)
    np.testing.assert_allclose(hess, np.where(active, 1.0, 1e-3) / tau**2, rtol=1e-6)
    assert grad.shape == hess.shape == scores.shape
    assert grad.dtype == hess.dtype == np.float32


@given(st.integers(0, 10**6), st.sampled_from([1, 3]), st.booleans(), st.floats(-3, 1))
def test_threshold_is_the_reference(seed, classes, steps, log_tau):
    rng = np.random.default_rng(seed)
    y, scores = labels_and_scores(int(rng.integers(1, 60)), classes, seed, 10 ** rng.uniform(-2, 2))
    scores = np.round(scores * 2) / 2 if steps else scores  # trees give scores with many ties
    objective = HyperSimplexObjective(10**log_tau)
    grad, _ = objective(y, scores)
    _, _, gradient, _ = expected(y, scores, 10**log_tau)
    mu = reference.threshold(scores, one_hot(y, scores).sum(0), 10**log_tau, axis=0)
    np.testing.assert_allclose(objective.threshold, np.atleast_1d(mu), rtol=1e-7, atol=1e-7)
    # Where a score lies on an end of the ramp the loss has no gradient, and rounding decides between its neighbours.
    ramp = (scores - mu) / 10**log_tau
    if np.minimum(abs(ramp), abs(ramp - 1)).min() > 1e-6:
        np.testing.assert_allclose(grad, gradient, rtol=1e-5, atol=1e-7 / 10**log_tau)


def weighted_loss(y, scores, w, tau):
    """By bisection, sharing nothing with the product."""
    target, lo, hi = one_hot(y, scores), scores.min() - tau, scores.max()
    for _ in range(200):
        mu = (lo + hi) / 2
        lo, hi = (mu, hi) if w @ np.clip((scores - mu) / tau, 0, 1) > w @ target else (lo, mu)
    return w @ (np.clip((scores - mu) / tau, 0, 1) - target) ** 2 / 2


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_gradient_and_hessian_by_finite_differences(tau):
    y, scores = labels_and_scores(40, 1, seed=3)
    w = np.random.default_rng(4).integers(1, 5, 40).astype(float)
    grad, hess = HyperSimplexObjective(tau)(y, scores, w)
    active = hess > 0.01 * w / tau**2
    assert 10 < active.sum() < 40
    total, h = w[active].sum(), 1e-4
    here = weighted_loss(y, scores, w, tau)
    for i in range(40):
        step = np.zeros(40)
        step[i] = h
        ahead, behind = (weighted_loss(y, scores + s, w, tau) for s in (step, -step))
        assert grad[i] == pytest.approx((ahead - behind) / (2 * h), abs=1e-6)
        # The threshold follows a row's own score as well; the diagonal leaves that part, w/total, out.
        curvature = hess[i] * (1 - w[i] / total) if active[i] else 0.0
        assert (ahead - 2 * here + behind) / h**2 == pytest.approx(curvature, abs=1e-3)


@SHAPES
def test_a_weight_is_as_many_copies(classes):
    y, scores = labels_and_scores(150, classes, seed=1)
    w = np.random.default_rng(2).integers(0, 4, 150)
    objective, copies = HyperSimplexObjective(0.7), HyperSimplexObjective(0.7)
    grad, hess = objective(y, scores, w)
    grad_copies, hess_copies = copies(np.repeat(y, w), np.repeat(scores, w, axis=0))
    np.testing.assert_allclose(objective.threshold, copies.threshold, rtol=1e-9)
    each = w if classes == 1 else w[:, None]
    np.testing.assert_allclose(
        np.repeat(grad, w, axis=0), np.repeat(each, w, axis=0) * grad_copies, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(np.repeat(hess, w, axis=0), np.repeat(each, w, axis=0) * hess_copies, rtol=1e-6)
    assert not grad[w == 0].any()
    assert objective.loss(y, scores, w) == pytest.approx(copies.loss(np.repeat(y, w), np.repeat(scores, w, axis=0)))


@pytest.mark.parametrize("begins", [_thresholds.FEW, _thresholds.SAMPLE])
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("classes", [1, 3])
def test_sizes_where_another_way_begins(begins, more, classes):
    n = begins + more
    y, scores = labels_and_scores(n, classes)
    objective = HyperSimplexObjective()
    _, loss, gradient, _ = expected(y, scores)
    np.testing.assert_allclose(objective(y, scores)[0], gradient, atol=1e-6)
    np.testing.assert_allclose(objective.loss(y, scores), loss / n, rtol=1e-9)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("spreads", [(0.1, 5, 5), (0.1, 1, 5), (5, 0.1, 0.1), (1e-3, 1, 1e3)])
def test_classes_whose_searches_end_at_different_times(more, spreads):
    """Labels are read in a pass that may be the last, which is not the last one of every class."""
    for seed in range(3):
        y, scores = labels_and_scores(_thresholds.FEW + more, 3, seed)
        scores *= spreads
        objective = HyperSimplexObjective()
        _, loss, gradient, _ = expected(y, scores)
        np.testing.assert_allclose(objective(y, scores)[0], gradient, atol=1e-6)
        np.testing.assert_allclose(objective.loss(y, scores), loss / len(y), rtol=1e-9)


def test_long_columns_start_from_a_sample():
    y, scores = labels_and_scores(300_000, 1, seed=5)
    scores = np.sort(scores)  # every step-th row of sorted scores is a fair sample, a shuffled one as well
    for x in (scores, np.random.default_rng(0).permutation(scores), np.round(scores, 1)):
        objective = HyperSimplexObjective(0.1)
        objective(y, x)
        p = np.clip((x - objective.threshold) / 0.1, 0, 1)
        assert p.sum() == pytest.approx(y.sum(), rel=1e-9)


def test_a_sample_that_misleads():
    n = 1 << 18
    scores = np.where(np.arange(n) % 4 == 0, 0.0, 100.0)  # the sample sees zeros only
    y = (np.arange(n) < n // 2).astype(float)
    objective = HyperSimplexObjective()
    objective(y, scores)
    assert np.clip(scores - objective.threshold, 0, 1).sum() == pytest.approx(n // 2)


def test_scores_of_lightgbm_are_not_copied():
    y, scores = labels_and_scores(100, 3)
    fortran = np.asfortranarray(scores)
    assert np.shares_memory(_columns.Columns(fortran, y, None).x, fortran)
    assert np.shares_memory(_columns.Columns(fortran[:, 1:], y * 0, None).x, fortran)
    grad, hess = HyperSimplexObjective()(y, fortran)
    assert grad.flags.f_contiguous
    assert hess.flags.f_contiguous
    other, _ = HyperSimplexObjective()(y, scores)
    np.testing.assert_array_equal(grad, other)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[::-1],
        lambda x: np.repeat(x, 2, 0)[::2],
        lambda x: x.astype(">f8"),
        lambda x: np.asfortranarray(np.concatenate([x, x]))[:64],  # columns with a gap between them
    ],
)
def test_any_layout(make):
    y, scores = labels_and_scores(64, 3)
    turned = make(scores)
    expect, _ = HyperSimplexObjective()(y, np.ascontiguousarray(turned, dtype=np.float64))
    grad, _ = HyperSimplexObjective()(y, turned)
    np.testing.assert_array_equal(grad, expect)


def test_the_paper_s_hessian():
    y, scores = labels_and_scores(50, 1)
    grad, hess = HyperSimplexObjective(0.5, hessian="ones")(y, scores)
    assert (hess == 1).all()
    np.testing.assert_array_equal(grad, HyperSimplexObjective(0.5)(y, scores)[0])
    w = np.arange(50.0)
    np.testing.assert_array_equal(HyperSimplexObjective(hessian="ones")(y, scores, w)[1], w)


def test_k_and_prior():
    y, scores = labels_and_scores(80, 3)
    for objective in (
        HyperSimplexObjective(k=[10, 20.5, 5]),
        HyperSimplexObjective(prior=np.array([10, 20.5, 5]) / 80),
    ):
        grad, _ = objective(y, scores)
        _, _, gradient, _ = expected(y, scores, k=np.array([10, 20.5, 5]))
        np.testing.assert_allclose(grad, gradient, rtol=1e-5, atol=1e-6)
    heavy = HyperSimplexObjective(prior=0.5)
    heavy(y % 2, scores[:, 0], np.full(80, 3.0))
    light = HyperSimplexObjective(prior=0.5)
    light(y % 2, scores[:, 0])
    np.testing.assert_allclose(heavy.threshold, light.threshold)


def test_decisions():
    y, scores = labels_and_scores(200, 3)
    objective = HyperSimplexObjective(0.5)
    with pytest.raises(RuntimeError, match="thresholds are not known yet"):
        objective.predict(scores)
    objective.calibrate(y, scores)
    shifted = HyperSimplexObjective(0.5).calibrate(y, scores + np.arange(3))
    np.testing.assert_array_equal(objective.predict(scores), shifted.predict(scores + np.arange(3)))
    assert objective.error_rate(y, scores) == np.mean(objective.predict(scores) != y)
    w = np.random.default_rng(0).random(200)
    assert objective.error_rate(y, scores, w) == pytest.approx(np.average(objective.predict(scores) != y, weights=w))
    assert objective.loss(y, scores) == pytest.approx(expected(y, scores, 0.5)[1] / 200)
    with pytest.raises(ValueError, match="y_pred must have 3 columns"):
        objective.scores(scores[:, :2])


def test_copies():
    y, scores = labels_and_scores(50, 1)
    objective = HyperSimplexObjective(2.0, prior=0.3)
    objective(y, scores)
    before = objective.threshold.copy()
    deep = copy.deepcopy(objective).calibrate(y, scores + 5)
    np.testing.assert_allclose(deep.threshold, before + 5)
    np.testing.assert_array_equal(objective.threshold, before)
    metric = copy.deepcopy(XGBoostMetric(objective))
    metric.objective.calibrate(y, scores - 5)
    np.testing.assert_array_equal(objective.threshold, before)
    twin = pickle.loads(pickle.dumps(objective))
    np.testing.assert_array_equal(twin.predict(scores), objective.predict(scores))
    fresh = objective.__sklearn_clone__()
    assert (fresh.tau, fresh.prior, fresh.threshold) == (2.0, 0.3, None)
    assert repr(fresh) == "HyperSimplexObjective(2.0, k=None, prior=0.3, hessian='gauss-newton')"
    metric = pickle.loads(pickle.dumps(XGBoostMetric(objective, "loss")))
    assert metric(y, scores) == objective.loss(y, scores)


def test_examples_in_docstrings():
    for module in (boosting.objective, boosting.metrics):
        assert doctest.testmod(module).failed == 0


def test_memory_is_used_again_but_never_under_somebodys_eyes():
    y, scores = labels_and_scores(1000, 1)
    objective = HyperSimplexObjective()
    grad, hess = objective(y, scores)
    kept = grad.copy()
    part = grad[::2]
    del grad, hess
    other, _ = objective(y, -scores)  # `part` still looks at the first
    np.testing.assert_array_equal(part, kept[::2])
    assert not np.shares_memory(other, part)
    place = other.ctypes.data
    del other, _
    again, _ = objective(y, scores)
    assert again.ctypes.data == place
    np.testing.assert_array_equal(again, kept)
    moved = pickle.loads(pickle.dumps(objective))
    np.testing.assert_array_equal(moved(y, scores)[0], kept)
    np.testing.assert_array_equal(again, kept)
