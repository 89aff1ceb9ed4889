"""What both classifiers of boosted trees do beyond scikit-learn: what users of their libraries know from there."""

from functools import partial, partialmethod

import numpy as np
import pytest

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

from sklearn.base import clone  # noqa: E402

from hypersimplex import _kernel  # noqa: E402
from hypersimplex.boosting import HyperSimplexObjective  # noqa: E402
from tests.boosting.problems import data  # noqa: E402
from tests.sklearn.models import NAMES, lgbm, xgb  # noqa: E402

BOTH = pytest.mark.parametrize("make", [lgbm, xgb])
PARAMS = {lgbm: "lgbm_params", xgb: "xgb_params"}


def projected(model, x):
    """Of the training rows, which add up to the positive ones at the right threshold."""
    scores = model.decision_function(x)
    return np.clip(scores + 0.5 if scores.ndim == 1 else scores, 0, 1).sum(0)


@BOTH
def test_importances_are_the_library_s(make):
    x, y = data(600)
    model = make().fit(x, y)
    importances = model.feature_importances_
    assert set(np.argsort(importances)[-3:]) == {0, 1, 2}
    if make is lgbm:
        trees = model.booster_.trees_to_dataframe()["split_feature"]
        assert importances.tolist() == [(trees == f"Column_{i}").sum() for i in range(6)]
    else:
        np.testing.assert_allclose(importances.sum(), 1)
        gains = model.booster_.trees_to_dataframe().query("Feature == 'f0'")["Gain"]
        scale = model.booster_.get_score(importance_type="gain")["f0"] / importances[0]
        np.testing.assert_allclose(importances[0] * scale, gains.mean(), rtol=1e-5)
    other = model.set_params(importance_type={lgbm: "gain", xgb: "weight"}[make]).feature_importances_
    assert (other != importances).any()
    assert not hasattr(make(), "feature_importances_")


@BOTH
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_training_rows_are_not_predicted_again(make, classes, early_stopping, monkeypatch):
    x, y = data(900, classes)
    model = make(early_stopping=early_stopping, n_estimators=200 if early_stopping else 5, learning_rate=0.5)

    def refuse(self, x):
        raise AssertionError("rows were predicted")

    with monkeypatch.context() as patch:
        patch.setattr(type(model), "_scores", refuse)
        model.fit(x[:600], y[:600], eval_set=(x[600:], y[600:]))
    assert (model.n_iter_ < 200) == early_stopping or model.n_iter_ == 5
    counts = np.bincount(y[:600])
    np.testing.assert_allclose(projected(model, x[:600]), counts if classes == 3 else counts[1], rtol=1e-5)


def test_xgboost_s_scores_are_taken_while_it_has_them(monkeypatch):
    x, y = data(300)
    events = []
    for name in ("predict", "reset"):  # a booster without its training's memory goes through all trees
        call = getattr(xgboost.Booster, name)
        noted = partial(lambda name, call, *given, **named: events.append(name) or call(*given, **named), name, call)
        monkeypatch.setattr(xgboost.Booster, name, partialmethod(noted))
    xgb(n_estimators=3).fit(x, y)
    assert events == ["predict"] * 4 + ["reset"]


@BOTH
@pytest.mark.parametrize(("n_jobs", "expected"), [(1, 1), (2, 2), (5, 3), (-1, 3), (None, 3)])
def test_n_jobs_holds_for_the_kernel_too(make, n_jobs, expected, monkeypatch):
    x, y = data(60)
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", "3")
    seen, call = set(), _kernel.objective_at
    monkeypatch.setattr(_kernel, "objective_at", lambda *given: seen.add(given[-1]) or call(*given))
    make(n_estimators=2, n_jobs=n_jobs).fit(x, y, eval_set=(x, y))
    assert seen == {expected}


@BOTH
def test_dropped_trees_are_back_in_the_thresholds(make):
    x, y = data(900)
    drop = {lgbm: {"boosting": "dart", "drop_rate": 0.5}, xgb: {"booster": "dart", "rate_drop": 0.5}}[make]
    # LightGBM does not stop these early.
    model = make(early_stopping=make is xgb, n_iter_no_change=3, learning_rate=0.5, **{PARAMS[make]: drop})
    model.fit(x[:600], y[:600], eval_set=(x[600:], y[600:]))
    assert make is lgbm or model.n_iter_ < 20
    np.testing.assert_allclose(projected(model, x[:600]), y[:600].sum(), rtol=1e-4)


@BOTH
def test_eval_sets_are_measured_and_stop(make):
    x, y = data(1200)
    x, others, y, other_y = x[:800], x[800:], NAMES[y[:800]], NAMES[y[800:]]
    weights = np.random.default_rng(0).random(400) + 0.5
    model = make(early_stopping=True, n_estimators=300, n_iter_no_change=5, learning_rate=0.3)
    model.fit(x, y, eval_set=[(others[:50], other_y[:50]), (others, other_y)], eval_sample_weight=[None, weights])
    assert model.n_iter_ < 300
    np.testing.assert_allclose(projected(model, x), (y == "birch").sum(), rtol=1e-4)  # no row was held out
    losses = model.evals_result_["valid_1"]["hypersimplex_loss"]
    raw = model.decision_function(others) + 0.5
    expected = HyperSimplexObjective().loss(other_y == "birch", raw, weights)
    np.testing.assert_allclose(losses[model.n_iter_ - 1], expected, rtol=1e-4)
    assert len(model.evals_result_["valid_0"]["hypersimplex_loss"]) == len(losses)
    assert not hasattr(make().fit(x, y), "evals_result_")
    with pytest.raises(ValueError, match=r"^y must hold classes in fit, \['ash', 'birch'\], got 'oak'$"):
        model.fit(x, y, eval_set=(others, np.repeat("oak", 400)))
    with pytest.raises(ValueError, match="one entry for each of the 1 sets of eval_set, got 2"):
        model.fit(x, y, eval_set=(others, other_y), eval_sample_weight=[None, None])


def test_callbacks_of_lightgbm():
    x, y = data(400)
    rounds = []
    model = lgbm(n_estimators=200, learning_rate=0.5).fit(
        x[:300],
        y[:300],
        eval_set=(x[300:], y[300:]),
        callbacks=[lightgbm.early_stopping(4, verbose=False), lambda env: rounds.append(env.iteration)],
    )
    assert model.n_iter_ + 4 == len(rounds) < 200
    np.testing.assert_allclose(projected(model, x[:300]), y[:300].sum(), rtol=1e-5)


def test_callbacks_of_xgboost():
    x, y = data(400)
    model = xgb(n_estimators=200, learning_rate=0.5).fit(
        x[:300], y[:300], eval_set=(x[300:], y[300:]), callbacks=[xgboost.callback.EarlyStopping(rounds=4)]
    )
    assert model.n_iter_ + 4 == len(model.evals_result_["valid_0"]["hypersimplex_loss"]) < 200
    np.testing.assert_allclose(projected(model, x[:300]), y[:300].sum(), rtol=1e-5)


@BOTH
def test_class_weights_are_row_weights(make):
    x, y = data(600, 3)
    rows = np.random.default_rng(0).random(600)
    expected = make().fit(x, y, sample_weight=rows * np.array([1.0, 2.0, 5.0])[y])
    found = make(class_weight={"ash": 1, "birch": 2, "cedar": 5}).fit(x, NAMES[y], sample_weight=rows)
    np.testing.assert_array_equal(found.decision_function(x), expected.decision_function(x))
    rare = np.flatnonzero((y != 0) | (np.arange(600) % 8 == 0))
    balanced, plain = (make(class_weight=w).fit(x[rare], y[rare]) for w in ("balanced", None))
    assert (balanced.predict(x) == 0).sum() > (plain.predict(x) == 0).sum()


@BOTH
@pytest.mark.parametrize("calibration", [None, "sigmoid"])
def test_warm_start_and_init_model_add_trees(make, calibration, tmp_path):
    x, y = data(400, 3)
    whole = make(n_estimators=20).fit(x, y)
    warm = make(n_estimators=8, warm_start=True, calibration=calibration).fit(x, y)
    first = clone(warm).fit(x, y)
    warm.set_params(n_estimators=20).fit(x, y)
    file = tmp_path / "first.json"
    first.booster_.save_model(file)
    added = make(n_estimators=12, calibration=calibration)
    for model in (warm, *(clone(added).fit(x, y, init_model=start) for start in (first, first.booster_, file))):
        assert model.n_iter_ == 20
        np.testing.assert_allclose(model.decision_function(x), whole.decision_function(x), atol=1e-5)
        assert (calibration is not None) == hasattr(model, "predict_proba")
    if calibration is not None:  # its folds begin anew, so that they have not seen what they hold out
        np.testing.assert_array_equal(
            warm.predict_proba(x), make(n_estimators=20, calibration=calibration).fit(x, y).predict_proba(x)
        )


@BOTH
@pytest.mark.parametrize("start", [None, "fitted", "warm"])
def test_the_models_of_calibration_have_as_many_trees(make, start, monkeypatch):
    x, y = data(300)
    model = make(n_estimators=8, warm_start=start == "warm")
    first = clone(model).fit(x, y) if start == "fitted" else None
    if start == "warm":
        model.fit(x, y)
    sizes, learn = [], type(model)._learn
    monkeypatch.setattr(type(model), "_learn", lambda m, *given: (learn(m, *given), sizes.append(m.n_iter_))[0])
    model.set_params(n_estimators=13, calibration="sigmoid", calibration_folds=2).fit(x, y, init_model=first)
    assert sizes == [21 if start == "fitted" else 13] * 3


@BOTH
def test_warm_start_goes_on_from_the_best_round(make):
    x, y = data(600)
    model = make(n_estimators=300, learning_rate=0.5, early_stopping=True, warm_start=True).fit(x, y)
    best = model.n_iter_
    assert best < 290
    with pytest.raises(ValueError, match=f"^n_estimators must be above {best}, .* got {best}$"):
        model.set_params(n_estimators=best).fit(x, y)
    with pytest.raises(ValueError, match=r"^y must hold classes of the fit before, \[0, 1\], got 2$"):
        model.set_params(n_estimators=best + 5).fit(x, y * 2)
    stale = make(n_estimators=4).fit(x, y, init_model=model)  # the rounds after the best one are no part of it
    model.set_params(early_stopping=False).fit(x, y)
    assert model.n_iter_ == best + 5
    assert stale.n_iter_ == best + 4
    for fitted in (model, stale):
        np.testing.assert_allclose(projected(fitted, x), y.sum(), rtol=1e-5)


@pytest.mark.parametrize("model", ["LGBMClassifier", "XGBClassifier"])
def test_init_model_of_the_library_s_own_classifier(model):
    x, y = data(300)
    library, make = (lightgbm, lgbm) if model == "LGBMClassifier" else (xgboost, xgb)
    start = getattr(library, model)(n_estimators=5, n_jobs=1).fit(x, y)
    fitted = make(n_estimators=10).fit(x, y, init_model=start)
    assert fitted.n_iter_ == 15
    np.testing.assert_allclose(projected(fitted, x), y.sum(), rtol=1e-5)


ALIASES = [
    (lgbm, "eta", 0.5, "learning_rate"),
    (lgbm, "num_leaf", 3, "num_leaves"),
    (lgbm, "min_child_samples", 60, "min_child_samples"),
    (lgbm, "lambda", 50.0, "reg_lambda"),
    (lgbm, "colsample_bytree", 0.4, "colsample_bytree"),
    (lgbm, "subsample", 0.5, "subsample"),
    (xgb, "eta", 0.5, "learning_rate"),
    (xgb, "lambda", 50.0, "reg_lambda"),
    (xgb, "max_depth", 2, "max_depth"),
    (xgb, "subsample", 0.5, "subsample"),
]


@pytest.mark.parametrize(("make", "alias", "value", "name"), ALIASES)
def test_parameters_under_any_of_their_names(make, alias, value, name):
    x, y = data(300)
    expected = make(**{name: value}).fit(x, y).decision_function(x)
    assert (expected != make().fit(x, y).decision_function(x)).any()
    found = make(**{PARAMS[make]: {alias: value}}).fit(x, y).decision_function(x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("make", "name"), [(lgbm, "objective"), (lgbm, "application"), (lgbm, "loss"), (xgb, "objective")]
)
def test_no_other_objective(make, name):
    x, y = data(60)
    with pytest.raises(ValueError, match=f"{PARAMS[make]} must not hold an objective, .* got {name}='binary'"):
        make(**{PARAMS[make]: {name: "binary"}}).fit(x, y)


@pytest.mark.parametrize("method", ["exact", "approx"])
def test_other_ways_to_grow_trees(method):
    x, y = data(300)
    model = xgb(xgb_params={"tree_method": method}).fit(x, y, eval_set=(x, y))
    np.testing.assert_allclose(projected(model, x), y.sum(), rtol=1e-5)
