"""A metric takes the thresholds of the training it belongs to: in folds, in clones, in threads and processes."""

import pickle

import numpy as np
import pytest

from hypersimplex.boosting import HyperSimplexObjective, LightGBMMetric, XGBoostMetric
from tests.boosting.problems import data

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit  # noqa: E402

QUIET = {"verbose": -1, "num_threads": 1, "deterministic": True, "metric": "None"}
PLAIN = {"nthread": 1, "base_score": 0.0, "disable_default_eval_metric": 1}
ROUNDS = 6


def shifted():
    """Rows whose share of positives falls, so that every fold has thresholds of its own."""
    x, y = data(400)
    order = np.argsort(-y + np.random.default_rng(0).normal(size=400) * 0.5)
    return x[order], y[order]


def lightgbm_alone(objective, x, y, train, test):
    training, history = lgb.Dataset(x[train], y[train]), {}
    lgb.train(
        {"objective": objective, **QUIET},
        training,
        ROUNDS,
        valid_sets=[lgb.Dataset(x[test], y[test], reference=training)],
        feval=LightGBMMetric(objective),
        callbacks=[lgb.record_evaluation(history)],
    )
    return history["valid_0"]["hypersimplex_error"]


def xgboost_alone(objective, x, y, train, test):
    history = {}
    xgb.train(
        PLAIN,
        xgb.DMatrix(x[train], y[train]),
        ROUNDS,
        obj=objective,
        custom_metric=XGBoostMetric(objective),
        evals=[(xgb.DMatrix(x[test], y[test]), "held")],
        evals_result=history,
        verbose_eval=False,
    )
    return history["held"]["hypersimplex_error"]


@pytest.mark.parametrize("splits", [KFold(4), TimeSeriesSplit(3)], ids=["folds", "time"])
@pytest.mark.parametrize("train_metric", [False, True])
def test_folds_of_lightgbm(splits, train_metric):
    x, y = shifted()
    folds = list(splits.split(x))
    # The bins are those of all rows in either case: a few values for each feature.
    x = np.round(x)
    objective = HyperSimplexObjective()
    for _ in range(2):  # a second run must not be confused by the first
        found = lgb.cv(
            {"objective": objective, **QUIET},
            lgb.Dataset(x, y, free_raw_data=False),
            ROUNDS,
            folds=folds,
            feval=LightGBMMetric(objective),
            eval_train_metric=train_metric,
            return_cvbooster=True,
        )
        expected = [lightgbm_alone(HyperSimplexObjective(), x, y, *fold) for fold in folds]
        np.testing.assert_allclose(found["valid hypersimplex_error-mean"], np.mean(expected, 0), atol=1e-9)


def test_folds_of_xgboost():
    x, y = shifted()
    x = np.round(x)
    folds = list(KFold(4).split(x))
    objective = HyperSimplexObjective()
    found = xgb.cv(
        PLAIN,
        xgb.DMatrix(x, y),
        ROUNDS,
        folds=folds,
        obj=objective,
        custom_metric=XGBoostMetric(objective),
        as_pandas=False,
    )
    expected = [xgboost_alone(HyperSimplexObjective(), x, y, *fold) for fold in folds]
    np.testing.assert_allclose(found["test-hypersimplex_error-mean"], np.mean(expected, 0), atol=1e-5)


@pytest.mark.parametrize("alone", [lightgbm_alone, xgboost_alone])
def test_one_objective_for_several_trainings_in_a_row(alone):
    x, y = shifted()
    objective, there, back = HyperSimplexObjective(), np.arange(200), np.arange(200, 400)
    for train, test in ((there, back), (back, there), (there, back)):
        assert alone(objective, x, y, train, test) == alone(HyperSimplexObjective(), x, y, train, test)


def test_data_that_was_trained_on_before_is_only_data():
    x, y = shifted()
    one, two = xgb.DMatrix(x[:200], y[:200]), xgb.DMatrix(x[200:], y[200:])
    histories = []
    for first in (True, False):
        objective, history = HyperSimplexObjective(), {}
        options = {"obj": objective, "custom_metric": XGBoostMetric(objective), "verbose_eval": False}
        if first:
            xgb.train(PLAIN, one, ROUNDS, evals=[(two, "held")], **options)
        xgb.train(PLAIN, two, ROUNDS, evals=[(one, "held")], evals_result=history, **options)
        histories.append(history["held"]["hypersimplex_error"])
    assert histories[0] == histories[1]


def test_trainings_in_turns_are_told_apart_or_refused():
    x, y = shifted()
    objective = HyperSimplexObjective()
    metric, held = XGBoostMetric(objective), xgb.DMatrix(x, y)
    matrices = [xgb.DMatrix(x[part], y[part]) for part in (slice(0, 200), slice(200, 400))]
    boosters = [xgb.Booster(PLAIN, [matrix]) for matrix in matrices]
    for round in range(2):
        thresholds = []
        for booster, matrix in zip(boosters, matrices, strict=True):
            booster.update(matrix, round, objective)
            thresholds.append(objective.threshold)
    scores = boosters[0].predict(matrices[0], output_margin=True)
    expected = HyperSimplexObjective()
    expected.threshold = thresholds[0]
    with pytest.raises(RuntimeError, match="got several trainings in turns"):
        metric(scores, held)
    assert metric(scores, matrices[0])[1] == expected.error_rate(y[:200], scores)


def cloned_xgboost(objective, x, y):
    model = clone(
        xgb.XGBClassifier(objective=objective, n_estimators=4, n_jobs=1, eval_metric=XGBoostMetric(objective))
    )
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    return model, model.evals_result()["validation_0"]["hypersimplex_error"]


def cloned_lightgbm(objective, x, y):
    model = clone(lgb.LGBMClassifier(objective=objective, n_estimators=4, **QUIET))
    model.fit(x, y, eval_X=x, eval_y=y, eval_metric=LightGBMMetric(objective))
    (history,) = model.evals_result_.values()
    return model, history["hypersimplex_error"]


@pytest.mark.parametrize("train", [cloned_xgboost, cloned_lightgbm])
@pytest.mark.parametrize("used", [False, True], ids=["new", "used before"])
def test_clones_keep_objective_and_metric_together(train, used):
    x, y = data()
    objective = HyperSimplexObjective()
    if used:
        objective.calibrate(y, y - 100.0)
    before = objective.threshold
    model, history = train(objective, x, y)
    assert objective.threshold is before  # a clone's training is its own
    scores = model.predict(x, **({"output_margin": True} if train is cloned_xgboost else {"raw_score": True}))
    assert history[-1] == pytest.approx(model.objective.error_rate(y, scores), abs=1e-6)
    assert history[-1] < 0.3


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_searches_in_parallel(backend):
    joblib = pytest.importorskip("joblib")
    x, y = data(300)
    objective = HyperSimplexObjective()
    model = lgb.LGBMClassifier(objective=objective, n_estimators=4, **QUIET)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        search = GridSearchCV(model, {"num_leaves": [4, 8]}, cv=2, scoring=_lowest_error, error_score="raise")
        search.fit(x, y, eval_X=x, eval_y=y, eval_metric=LightGBMMetric(objective))
    assert search.cv_results_["mean_test_score"].max() < 0.3


def _lowest_error(model, x, y):
    (history,) = model.evals_result_.values()
    return min(history["hypersimplex_error"])


def test_clones_of_a_subclass():
    class Louder(HyperSimplexObjective):
        def __init__(self, volume):
            super().__init__(0.5)
            self.volume = volume

    twin = clone(Louder(11).calibrate([0, 1], [0.0, 1.0]))
    assert (type(twin), twin.volume, twin.tau, twin.threshold) == (Louder, 11, 0.5, None)


def test_a_pickle_keeps_them_together():
    objective = HyperSimplexObjective()
    twin, metric = pickle.loads(pickle.dumps((clone(objective), LightGBMMetric(objective))))
    twin.calibrate([0, 1, 1], [0.0, 1.0, 2.0])
    assert metric([0, 1, 0], [0.1, 1.2, 3.0])[1] == pytest.approx(1 / 3)


def stopped_lightgbm(settings, x, y):
    objective = HyperSimplexObjective()
    model = lgb.LGBMClassifier(objective=objective, n_estimators=200, verbose=-1, n_jobs=1, **settings)
    metric = LightGBMMetric(objective, "loss")
    stop = [lgb.early_stopping(10, verbose=False)]
    model.fit(x[:400], y[:400], eval_X=x[400:], eval_y=y[400:], eval_metric=metric, callbacks=stop)
    (history,) = model.evals_result_.values()
    return history, model.best_iteration_ - 1


def stopped_xgboost(settings, x, y):
    objective = HyperSimplexObjective()
    model = xgb.XGBClassifier(
        objective=objective, n_estimators=200, n_jobs=1, early_stopping_rounds=10, **settings,
        eval_metric=XGBoostMetric(objective, "loss"),
    )  # fmt: skip
    model.fit(x[:400], y[:400], eval_set=[(x[400:], y[400:])], verbose=False)
    return model.evals_result()["validation_0"], model.best_iteration


@pytest.mark.parametrize(
    ("train", "settings"),
    [
        (stopped_lightgbm, {"metric": "None"}),
        (stopped_xgboost, {}),  # the last metric decides, which is ours
        (stopped_xgboost, {"disable_default_eval_metric": True}),
    ],
)
def test_early_stopping_follows_our_metric(train, settings):
    x, y = data(600)
    history, best = train(settings, x, y)
    assert list(history)[-1] == "hypersimplex_loss"
    assert best == int(np.argmin(history["hypersimplex_loss"]))


def test_without_that_lightgbm_also_follows_its_own():
    x, y = data(600)
    history, best = stopped_lightgbm({}, x, y)
    assert set(history) == {"binary_logloss", "hypersimplex_loss"}
    assert best != int(np.argmin(stopped_lightgbm({"metric": "None"}, x, y)[0]["hypersimplex_loss"]))
