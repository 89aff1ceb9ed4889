"""All classifiers as citizens of scikit-learn."""

import doctest
import importlib
import pickle

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("torch")
pytest.importorskip("xgboost")

from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.boosting.problems import data
from tests.sklearn.models import NAMES, lgbm, mlp, xgb

ALL = pytest.mark.parametrize("make", [lgbm, xgb, mlp])


@ALL
@pytest.mark.parametrize("classes", [2, 4])
def test_learns_string_labels(make, classes):
    x, y = data(1200, classes)
    model = make().fit(x[:800], NAMES[y[:800]])
    assert model.classes_.tolist() == NAMES[:classes].tolist()
    assert model.score(x[800:], NAMES[y[800:]]) > np.bincount(y).max() / len(y) + 0.15
    decision = model.decision_function(x)
    assert decision.shape == ((1200,) if classes == 2 else (1200, classes))
    chosen = (decision > 0).astype(int) if classes == 2 else decision.argmax(1)
    np.testing.assert_array_equal(model.predict(x), NAMES[chosen])
    assert model.threshold_.shape == ((1,) if classes == 2 else (classes,))


@ALL
def test_thresholds_are_part_of_the_model(make):
    x, y = data(800)
    model = make().fit(x, y)
    assert np.clip(model.decision_function(x) + 0.5, 0, 1).sum() == pytest.approx(y.sum(), rel=1e-4)


@ALL
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated(make, method, classes):
    x, y = data(1500, classes)
    model = make(calibration=method, calibration_folds=3).fit(x[:1000], y[:1000])
    probability = model.predict_proba(x[1000:])
    np.testing.assert_allclose(probability.sum(1), 1)
    # Isotonic probabilities may be 0 and 1: a single surprise would cost everything.
    probability = np.clip(probability, 0.01, 0.99)
    probability /= probability.sum(1, keepdims=True)
    constant = np.tile(np.bincount(y) / len(y), (500, 1))
    assert log_loss(y[1000:], probability) < 0.85 * log_loss(y[1000:], constant)
    assert probability.mean(0) == pytest.approx(np.bincount(y[1000:]) / 500, abs=0.06)


@ALL
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_weights_count_in_the_probabilities(make, method):
    x, y = data(1500)
    weights = np.where(y == 1, 8.0, 1.0)
    for settings, given in (({}, weights), ({"class_weight": {0: 1, 1: 8}}, None)):
        model = make(calibration=method, calibration_folds=3, **settings)
        model.fit(x[:1000], y[:1000], None if given is None else given[:1000])
        found = np.average(model.predict_proba(x[1000:])[:, 1], weights=weights[1000:])
        assert found == pytest.approx(np.average(y[1000:], weights=weights[1000:]), abs=0.04)


def test_no_probabilities_without_calibration():
    assert not hasattr(lgbm(), "predict_proba")
    with pytest.raises(AttributeError, match=r"^HyperSimplexMLPClassifier has predict_proba .*calibration='sigmoid'"):
        mlp().predict_proba([[0.0]])
    x, y = data(100)
    with pytest.raises(ValueError, match="calibration must be None, 'sigmoid' or 'isotonic', got 'platt'"):
        lgbm(calibration="platt").fit(x, y)


@ALL
def test_frames(make):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    x, y = data(300)
    names = [f"f{i}" for i in range(x.shape[1])]
    expected = make().fit(x, y).decision_function(x)
    for frame in (pandas.DataFrame(x, columns=names), polars.DataFrame(x, schema=names)):
        model = make().fit(frame, y)
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(model.decision_function(frame), expected)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[names[::-1]])


@ALL
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_sparse_rows(make, form):
    x, y = data(400)
    x[np.abs(x) < 0.5] = 0
    # Entries that are not stored are missing to XGBoost, 0 to the others.
    same = np.where(x == 0, np.nan, x) if make is xgb else x
    expected = make().fit(same, y).decision_function(same)
    np.testing.assert_allclose(make().fit(form(x), y).decision_function(form(x)), expected, atol=1e-5)


@ALL
def test_weights(make):
    x, y = data(400)
    w = np.random.default_rng(0).integers(0, 3, 400)
    whole = {"batch_size": 4000} if make is mlp else {}
    if make is lgbm:
        whole = {"min_child_samples": 0, "lgbm_params": {"min_data_in_bin": 1}}
    if make is not mlp:
        x = np.round(x)
    weighted = make(**whole).fit(x, y, sample_weight=w)
    copied = make(**whole).fit(np.repeat(x, w, 0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.decision_function(x), copied.decision_function(x), rtol=1e-3, atol=1e-3)


@ALL
def test_pipelines_grids_clones_and_pickles(make):
    x, y = data(300)
    pipeline = make_pipeline(StandardScaler(), make(calibration="sigmoid", calibration_folds=2))
    assert cross_val_score(pipeline, x, y, cv=3, scoring="roc_auc").mean() > 0.6
    name = type(make()).__name__.lower()
    grid = GridSearchCV(pipeline, {f"{name}__tau": [0.5, 2.0]}, cv=2, scoring="neg_log_loss").fit(x, y)
    assert grid.best_params_[f"{name}__tau"] in (0.5, 2.0)
    twin = pickle.loads(pickle.dumps(grid))
    np.testing.assert_array_equal(twin.predict_proba(x), grid.predict_proba(x))
    fresh = clone(grid.best_estimator_)
    with pytest.raises(NotFittedError):
        fresh.predict(x)
    assert roc_auc_score(y, grid.decision_function(x)) > 0.7


@ALL
def test_same_seed_same_model(make):
    x, y = data(200)
    first, second = (make().fit(x, y).decision_function(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@ALL
def test_stops_early(make, capsys):
    x, y = data(1000)
    longest = {"max_iter": 400} if make is mlp else {"n_estimators": 400, "learning_rate": 0.3}
    model = make(early_stopping=True, validation_fraction=0.3, verbose=1, **longest).fit(x, y)
    assert model.n_iter_ < 400
    assert capsys.readouterr().out.strip()


@ALL
def test_errors_are_scikit_learn_s(make):
    x, y = data(60)
    with pytest.raises(ValueError, match="the data contains only one class: 0"):
        make().fit(x, np.zeros(60, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        make().fit(x, np.random.default_rng(0).random(60))
    with pytest.raises(NotFittedError):
        make().predict(x)
    model = make().fit(x, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(x[:, :2])
    x[3, 1] = np.nan
    if make is mlp:
        with pytest.raises(ValueError, match="contains NaN"):
            make().fit(x, y)
    else:
        assert np.isfinite(make().fit(x, y).decision_function(x)).all()


@ALL
def test_tau_belongs_to_the_training(make):
    x, y = data(200)
    model = make().fit(x, y)
    expected = model.decision_function(x)
    np.testing.assert_array_equal(model.set_params(tau=9.0).decision_function(x), expected)
    assert model.tau_ == 1.0


@ALL
def test_calibration_belongs_to_the_training(make):
    x, y = data(200)
    model = make(calibration="sigmoid", calibration_folds=2).fit(x, y)
    assert model.predict_proba(x).shape == (200, 2)
    model.set_params(calibration=None).fit(x, y).set_params(calibration="sigmoid")
    with pytest.raises(NotFittedError, match="predict_proba needs a call of fit with calibration='sigmoid'"):
        model.predict_proba(x)


def test_examples_in_docstrings():
    for name in ("lgbm", "mlp", "xgb"):
        assert doctest.testmod(importlib.import_module(f"hypersimplex.sklearn.{name}")).failed == 0
