"""Columns of categories in the classifiers of boosted trees."""

import numpy as np
import pytest

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
pandas = pytest.importorskip("pandas")

from hypersimplex.boosting import HyperSimplexObjective  # noqa: E402
from tests.boosting.problems import data  # noqa: E402
from tests.sklearn.models import lgbm, xgb  # noqa: E402

BOTH = pytest.mark.parametrize("make", [lgbm, xgb])
CITIES = np.array(["Ghent", "Lille", "Basel", "Turin", "Porto", "Malmo"])


def frame(n=900, seed=0):
    """Every second city is on one side, in an order that no single split finds."""
    x, _ = data(n, seed=seed)
    city = np.random.default_rng(seed).integers(0, 6, n)
    rows = pandas.DataFrame(x[:, :2], columns=["a", "b"])
    rows["city"] = pandas.Categorical(CITIES[city], CITIES)
    return rows, ((city % 2) + x[:, 0] * 0.3 > 0.5).astype(int)


@BOTH
def test_a_frame_s_categories_are_the_library_s(make):
    x, y = frame()
    x.loc[5:9, "city"] = np.nan
    model = make(n_estimators=10).fit(x, y)
    settings, objective = model._settings(model._given) if make is xgb else model._settings(), HyperSimplexObjective()
    if make is lgbm:
        booster = lightgbm.train(settings | {"objective": objective}, lightgbm.Dataset(x, y), 10)
        raw = booster.predict(x, raw_score=True)
    else:
        rows = xgboost.QuantileDMatrix(x, y, enable_categorical=True)
        booster = xgboost.train(settings, rows, 10, obj=objective)
        raw = booster.predict(xgboost.DMatrix(x, enable_categorical=True), output_margin=True)
    expected = objective.calibrate(y, raw).scores(raw) - 0.5
    np.testing.assert_allclose(model.decision_function(x), expected, atol=1e-5)
    assert model.score(x, y) > 0.95
    assert model.feature_importances_[2] > 0


@BOTH
def test_codes_follow_the_categories_of_fit(make):
    x, y = frame()
    model = make().fit(x, y)
    expected = model.decision_function(x)
    shuffled = x.assign(city=x["city"].cat.set_categories([*CITIES[::-1], "Paris"]))
    np.testing.assert_array_equal(model.decision_function(shuffled), expected)
    unknown, missing = x.assign(city=pandas.Categorical(["Paris"] * 900)), x.assign(city=x["city"].where(x["a"] > 9))
    np.testing.assert_array_equal(model.decision_function(unknown), model.decision_function(missing))
    assert x["city"].dtype == "category"  # the caller's frame is as it was


@BOTH
def test_categories_through_folds_weights_and_eval_sets(make):
    x, y = frame()
    others, other_y = frame(300, seed=1)
    model = make(calibration="sigmoid", calibration_folds=2, early_stopping=True)
    model.fit(x, y, sample_weight=np.arange(900) % 3, eval_set=(others, other_y))
    assert ((model.predict_proba(others)[:, 1] > 0.5) == other_y).mean() > 0.9
    assert model.evals_result_["valid_0"]["hypersimplex_loss"][-1] < 0.1


@BOTH
def test_categorical_feature_names_columns(make):
    x, y = frame()
    codes = x.assign(city=x["city"].cat.codes)
    expected = make().fit(x, y).decision_function(x)
    for columns in (["city"], [2], np.array([2])):
        model = make().fit(codes, y, categorical_feature=columns)
        np.testing.assert_array_equal(model.decision_function(codes), expected)
    np.testing.assert_array_equal(
        make().fit(codes.to_numpy(), y, categorical_feature=[2]).decision_function(codes.to_numpy()), expected
    )
    numbers = make().fit(codes, y).decision_function(codes)
    assert (numbers != expected).any()
    ordered = x.assign(city=x["city"].cat.as_ordered())
    np.testing.assert_array_equal(make().fit(ordered, y).decision_function(ordered), numbers)
    for wrong in ("town", 3):
        with pytest.raises(ValueError, match=f"categorical_feature must be 'auto' or columns of X, got {wrong!r}"):
            make().fit(codes, y, categorical_feature=[wrong])
    letters = codes.set_axis(["c", "b", "a"], axis=1)
    with pytest.raises(ValueError, match="categorical_feature must be 'auto' or columns of X, got 'ab'"):
        make().fit(letters, y, categorical_feature="ab")


@BOTH
def test_columns_must_stay_what_they_were(make):
    x, y = frame(300)
    codes = x.assign(city=x["city"].cat.codes)
    with pytest.raises(ValueError, match=r"pandas categories in the columns that had them in fit, \[2\], got \[\]$"):
        make().fit(x, y).predict(codes)
    with pytest.raises(ValueError, match=r"pandas categories in the columns that had them in fit, \[\], got \[2\]$"):
        make().fit(codes, y).predict(x)
