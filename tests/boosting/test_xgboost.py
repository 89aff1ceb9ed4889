"""The objective inside XGBoost."""

import numpy as np
import pytest

from hypersimplex.boosting import HyperSimplexObjective, XGBoostMetric
from tests.boosting.problems import data

xgb = pytest.importorskip("xgboost")

PLAIN = {"nthread": 1, "reg_lambda": 0.0, "min_child_weight": 0.0, "base_score": 0.0}
CLASSES = pytest.mark.parametrize("classes", [2, 3])


def train(objective, x, y, weight=None, rounds=20, **settings):
    several = {"num_class": int(y.max()) + 1} if y.max() > 1 else {}
    matrix = xgb.DMatrix(x, y, weight=weight)
    booster = xgb.train({**PLAIN, **several, **settings}, matrix, rounds, obj=objective)
    return booster, booster.predict(matrix, output_margin=True)


@CLASSES
def test_train_and_classifier_agree(classes):
    x, y = data(classes=classes)
    native, wrapped = HyperSimplexObjective(), HyperSimplexObjective()
    _, scores = train(native, x, y)
    settings = {key: value for key, value in PLAIN.items() if key != "nthread"}
    model = xgb.XGBClassifier(objective=wrapped, n_estimators=20, n_jobs=1, **settings).fit(x, y)
    margin = model.predict(x, output_margin=True)
    assert scores.shape == ((len(y),) if classes == 2 else (len(y), classes))
    # The classifier may start from another constant, which neither loss nor decision sees.
    np.testing.assert_allclose(wrapped.scores(margin), native.scores(scores), rtol=1e-4, atol=1e-4)
    assert native.error_rate(y, scores) < 0.5 * (1 - np.bincount(y).max() / len(y))


@CLASSES
@pytest.mark.parametrize("tau", [2**-10, 8.0])
def test_trees_do_not_depend_on_tau(classes, tau):
    x, y = data(classes=classes)
    one, other = HyperSimplexObjective(), HyperSimplexObjective(tau)
    (first, scores), (second, scaled) = (train(objective, x, y, max_depth=3) for objective in (one, other))
    np.testing.assert_allclose(scores * tau, scaled, rtol=1e-4, atol=1e-5 * tau)
    leaves = [booster.predict(xgb.DMatrix(x), pred_leaf=True) for booster in (first, second)]
    np.testing.assert_array_equal(*leaves)


def test_weights_reach_the_objective():
    x, y = data()
    w = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    _, weighted = train(HyperSimplexObjective(), x, y, w, rounds=5, tree_method="exact")
    copies = w.astype(int)
    booster, _ = train(
        HyperSimplexObjective(), np.repeat(x, copies, 0), np.repeat(y, copies), rounds=5, tree_method="exact"
    )
    again = booster.predict(xgb.DMatrix(x), output_margin=True)
    np.testing.assert_allclose(weighted[w > 0], again[w > 0], rtol=1e-3, atol=1e-4)


@CLASSES
def test_metrics_stop_early(classes):
    x, y = data(1500, classes)
    objective, history = HyperSimplexObjective(), {}
    settings = {**PLAIN, "disable_default_eval_metric": 1, **({"num_class": classes} if classes > 2 else {})}
    validation = xgb.DMatrix(x[1000:], y[1000:])
    booster = xgb.train(
        settings,
        xgb.DMatrix(x[:1000], y[:1000]),
        300,
        obj=objective,
        custom_metric=XGBoostMetric(objective, "loss"),
        evals=[(validation, "held")],
        early_stopping_rounds=10,
        evals_result=history,
        verbose_eval=False,
    )
    losses = history["held"]["hypersimplex_loss"]
    assert int(np.argmin(losses)) == booster.best_iteration < 290
    best = booster.predict(validation, output_margin=True, iteration_range=(0, booster.best_iteration + 1))
    assert objective.loss(y[1000:], best) == pytest.approx(min(losses), rel=1e-5)


def test_metric_of_the_classifier():
    x, y = data()
    objective = HyperSimplexObjective()
    model = xgb.XGBClassifier(objective=objective, n_estimators=5, n_jobs=1, eval_metric=XGBoostMetric(objective))
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    history = model.evals_result()["validation_0"]["hypersimplex_error"]
    assert history[-1] == pytest.approx(objective.error_rate(y, model.predict(x, output_margin=True)), abs=1e-6)
