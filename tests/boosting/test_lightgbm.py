"""The objective inside LightGBM."""

import copy
import multiprocessing
import socket

import numpy as np
import pytest

from hypersimplex.boosting import HyperSimplexObjective, LightGBMMetric, _columns
from tests.boosting.problems import assert_same_trees, data

lgb = pytest.importorskip("lightgbm")

QUIET = {"verbose": -1, "num_threads": 1, "deterministic": True, "min_sum_hessian_in_leaf": 0.0}
CLASSES = pytest.mark.parametrize("classes", [2, 3])


def train(objective, x, y, weight=None, rounds=20, **settings):
    several = {"num_class": int(y.max()) + 1} if y.max() > 1 else {}
    return lgb.train({"objective": objective, **QUIET, **several, **settings}, lgb.Dataset(x, y, weight=weight), rounds)


@CLASSES
def test_train_and_classifier_fit_the_same_trees(classes):
    x, y = data(classes=classes)
    native, wrapped = HyperSimplexObjective(), HyperSimplexObjective()
    booster = train(native, x, y)
    model = lgb.LGBMClassifier(objective=wrapped, n_estimators=20, **QUIET).fit(x, y)
    assert_same_trees(booster, model.booster_, x)
    np.testing.assert_array_equal(native.threshold, wrapped.threshold)
    assert native.error_rate(y, booster.predict(x)) < 0.5 * (1 - np.bincount(y).max() / len(y))


@CLASSES
@pytest.mark.parametrize("tau", [2**-10, 8.0])
def test_trees_do_not_depend_on_tau(classes, tau):
    x, y = data(classes=classes)
    one, other = HyperSimplexObjective(), HyperSimplexObjective(tau)
    # Few leaves: among many small ones two splits may be equally good, and the last digit decides.
    first, second = (train(objective, x, y, num_leaves=8) for objective in (one, other))
    assert_same_trees(first, second, x, scale=tau)
    np.testing.assert_allclose(other.threshold, one.threshold * tau, rtol=1e-9)
    np.testing.assert_array_equal(one.predict(first.predict(x)), other.predict(second.predict(x)))


def test_with_ones_they_do():
    x, y = data()
    first, second = (train(HyperSimplexObjective(tau, hessian="ones"), x, y).predict(x) for tau in (1.0, 0.125))
    assert np.abs(first * 0.125 - second).max() > 0.01


def test_a_weight_is_as_many_copies():
    x, y = data()
    x = np.round(2 * x) / 2
    w = np.random.default_rng(1).integers(1, 4, len(y))
    # LightGBM's own rules count rows, whatever they weigh: none of them here.
    counts = {"rounds": 5, "num_leaves": 5, "min_data_in_leaf": 0, "min_data_in_bin": 1}
    weighted = train(HyperSimplexObjective(), x, y, w.astype(float), **counts)
    copied = train(HyperSimplexObjective(), np.repeat(x, w, 0), np.repeat(y, w), **counts)
    np.testing.assert_allclose(weighted.predict(x), copied.predict(x), rtol=1e-4, atol=1e-5)


def test_scores_and_gradients_are_passed_without_copies():
    x, y = data(classes=3)
    seen = []

    class Watching(HyperSimplexObjective):
        def __call__(self, y_true, y_pred, sample_weight=None):
            labels = y_pred.get_label()
            seen.append(np.shares_memory(_columns.Columns(y_true, labels, None).x, y_true))
            seen.append(np.shares_memory(_columns.Columns(y_true, labels, None).labels, labels))
            grad, hess = super().__call__(y_true, y_pred, sample_weight)
            seen.append(np.shares_memory(grad.ravel(order="F"), grad) and grad.dtype == np.float32)
            return grad, hess

    train(Watching(), x, y, rounds=3)
    assert len(seen) == 9
    assert all(seen)


@CLASSES
def test_metrics_stop_early(classes):
    x, y = data(1500, classes)
    objective = HyperSimplexObjective()
    metrics = [LightGBMMetric(objective, "loss"), LightGBMMetric(objective, "error")]
    several = {"num_class": classes} if classes > 2 else {}
    training, history = lgb.Dataset(x[:1000], y[:1000]), {}
    booster = lgb.train(
        {"objective": objective, "metric": "None", **QUIET, **several},
        training,
        300,
        valid_sets=[lgb.Dataset(x[1000:], y[1000:], reference=training)],
        feval=metrics,
        callbacks=[lgb.early_stopping(10, first_metric_only=True, verbose=False), lgb.record_evaluation(history)],
    )
    assert 1 < booster.best_iteration < 290
    losses, errors = history["valid_0"]["hypersimplex_loss"], history["valid_0"]["hypersimplex_error"]
    assert int(np.argmin(losses)) + 1 == booster.best_iteration
    scores = booster.predict(x[1000:])
    assert objective.loss(y[1000:], scores) == pytest.approx(min(losses))
    objective.calibrate(y[:1000], booster.predict(x[:1000]))
    assert objective.error_rate(y[1000:], scores) == pytest.approx(errors[booster.best_iteration - 1], abs=0.03)


def test_metrics_of_the_classifier_see_weights():
    x, y = data()
    w = np.random.default_rng(0).random(len(y))
    objective = HyperSimplexObjective()
    model = lgb.LGBMClassifier(objective=objective, n_estimators=3, metric="None", **QUIET)
    model.fit(x, y, w, eval_X=x, eval_y=y, eval_sample_weight=[w], eval_metric=LightGBMMetric(objective, "loss"))
    (history,) = model.evals_result_.values()
    assert history["hypersimplex_loss"][-1] == pytest.approx(objective.loss(y, model.predict(x, raw_score=True), w))


@pytest.mark.parametrize("native", [True, False], ids=["train", "classifier"])
def test_several_machines_are_refused(native):
    ports = free_ports(2)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        said = pool.starmap_async(on_one_of_two_machines, [(port, ports, native) for port in ports]).get(120)
    assert said == [TWO_MACHINES] * 2


TWO_MACHINES = (
    "num_machines must be 1, got 2: LightGBM gives an objective no way to reach the other machines' rows; use XGBoost "
    "on Dask for training on several"
)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def on_one_of_two_machines(port, ports, native):
    """What this machine says; LightGBM waits for the other before it calls an objective."""
    machines = ",".join(f"127.0.0.1:{each}" for each in ports)
    network = {"machines": machines, "local_listen_port": port, "tree_learner": "data", "time_out": 1, **QUIET}
    x, y = data()
    try:
        if native:
            lgb.train({"objective": HyperSimplexObjective(), **network}, lgb.Dataset(x, y), 2)
        else:
            lgb.LGBMClassifier(objective=HyperSimplexObjective(), n_estimators=2, **network).fit(x, y)
    except ValueError as error:
        return str(error)
    return None


def test_a_copy_is_trained_apart_but_train_reaches_the_one_it_was_given():
    x, y = data()
    objective = HyperSimplexObjective()
    train(objective, x, y, rounds=3)
    before = objective.threshold.copy()
    model = copy.deepcopy(lgb.LGBMClassifier(objective=objective, n_estimators=5, **QUIET))
    model.fit(x, y)
    np.testing.assert_array_equal(objective.threshold, before)
    assert model.objective.threshold is not None


def test_thresholds_decide_where_zero_would_not():
    x, y = data(2000)
    rare = (y == 1) & (np.arange(2000) % 4 == 0)
    objective = HyperSimplexObjective()
    scores = train(objective, x, rare.astype(int), rounds=100).predict(x)
    objective.calibrate(rare, scores)
    assert objective.error_rate(rare, scores) < min(np.mean((scores > 0) != rare), rare.mean())
