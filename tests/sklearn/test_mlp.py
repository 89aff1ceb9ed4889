"""The perceptron: its layers and batches, sparse rows, several labels, warm starts and class weights."""

import numpy as np
import pytest

pytest.importorskip("torch")

from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import log_loss

from hypersimplex.sklearn import _training
from tests.boosting.problems import data
from tests.sklearn.models import NAMES, mlp


def labels(n=600, seed=0):
    """Three labels, of which a row may have any number."""
    x, _ = data(n, seed=seed)
    noise = np.random.default_rng(seed).normal(size=(n, 3)) * 0.3
    return x, (np.stack([x[:, 0], x[:, 1] + 0.8, x[:, 2] - x[:, 0]], 1) + noise > 0).astype(int)


@pytest.mark.parametrize("size", [2, 7, 100, 149, 5000, "auto"])
def test_batches_of_any_size(size):
    x, y = data(150)
    model = mlp(batch_size=size, max_iter=2).fit(x, y)
    assert np.isfinite(model.decision_function(x)).all()


@pytest.mark.parametrize("size", [0, 1])
def test_a_batch_must_have_two_rows_to_learn_from(size):
    x, y = data(20)
    with pytest.raises(ValueError, match=f"batch_size must be at least 2, for a gradient, or 'auto', got {size}"):
        mlp(batch_size=size).fit(x, y)
    mlp(max_iter=1).partial_fit(x[:1], y[:1], classes=[0, 1])  # a row alone is no error of the settings


def test_hidden_layers():
    x, y = data(60)
    one, other = (mlp(hidden_layer_sizes=sizes).fit(x, y) for sizes in (16, [np.int64(16)]))
    np.testing.assert_array_equal(one.decision_function(x), other.decision_function(x))
    for sizes in (0, (4, -1), (2.5,), "16"):
        with pytest.raises(ValueError, match="hidden_layer_sizes must be whole numbers above 0, got"):
            mlp(hidden_layer_sizes=sizes).fit(x, y)


@pytest.mark.parametrize("rows", [9, 10, 11])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_rows_are_made_dense_in_pieces(rows, form, monkeypatch):
    x, y = data(60)
    model = mlp(max_iter=3).fit(x, y)
    expected = model.decision_function(x[:rows])
    monkeypatch.setattr(_training, "ENTRIES_AT_ONCE", 10 * x.shape[1])
    np.testing.assert_allclose(model.decision_function(form(x[:rows])), expected, rtol=1e-6, atol=1e-6)


def test_sparse_rows_with_everything_else():
    x, y = labels()
    x[np.abs(x) < 0.5] = 0
    settings = {"early_stopping": True, "calibration": "sigmoid", "calibration_folds": 2, "max_iter": 5}
    weights = np.arange(600) % 3
    expected = mlp(**settings).fit(x, y, sample_weight=weights).predict_proba(x)
    found = mlp(**settings).fit(sparse.csr_array(x), sparse.csr_matrix(y), sample_weight=weights)
    np.testing.assert_allclose(found.predict_proba(sparse.csc_matrix(x)), expected, atol=1e-6)


def test_several_labels():
    x, y = labels(1200)
    model = mlp().fit(x[:800], y[:800])
    assert model.classes_.tolist() == [0, 1, 2]
    predicted, decision = model.predict(x[800:]), model.decision_function(x[800:])
    np.testing.assert_array_equal(predicted, decision > 0)
    assert (predicted == y[800:]).mean() > 0.85
    assert model.score(x[800:], y[800:]) == (predicted == y[800:]).all(1).mean()  # scikit-learn's subset accuracy
    projected = np.clip(model.decision_function(x[:800]) + 0.5, 0, 1).sum(0)
    np.testing.assert_allclose(projected, y[:800].sum(0), rtol=1e-4)


@pytest.mark.parametrize("columns", [1, 2])
def test_few_labels(columns):
    x, y = labels(200)
    y = y[:, :columns]
    if columns == 1:
        with pytest.warns(Warning, match="column-vector y was passed"):
            assert mlp(max_iter=2).fit(x, y).predict(x).shape == (200,)
    else:
        assert mlp(max_iter=2).fit(x, y).predict(x).shape == (200, 2)


def test_probabilities_of_labels():
    x, y = labels(1200)
    y = np.column_stack([y, np.zeros(1200, int), np.ones(1200, int)])
    model = mlp(calibration="sigmoid", calibration_folds=3).fit(x[:800], y[:800])
    probability = model.predict_proba(x[800:])
    assert probability.shape == (400, 5)
    for c in range(3):
        assert log_loss(y[800:, c], probability[:, c]) < 0.6 * log_loss(y[800:, c], np.full(400, y[:, c].mean()))
    assert (probability[:, 3] == 0).all()
    assert (probability[:, 4] == 1).all()


def test_weights_of_rows_with_labels():
    x, y = labels(300)
    w = np.random.default_rng(0).integers(0, 3, 300)
    weighted = mlp(batch_size=4000).fit(x, y, sample_weight=w)
    copied = mlp(batch_size=4000).fit(np.repeat(x, w, 0), np.repeat(y, w, 0))
    np.testing.assert_allclose(weighted.decision_function(x), copied.decision_function(x), rtol=1e-3, atol=1e-3)


def test_labels_are_zero_or_one():
    x, y = data(60, 3)
    with pytest.raises(ValueError, match=r"^y must hold one class for each row, or 0 and 1 for .* multiclass-multi"):
        mlp().fit(x, np.stack([y, y], 1))


def test_a_fit_leaves_nothing_to_the_next():
    x, many = labels(200)
    one = data(200, 3)[1]
    settings = {"max_iter": 3, "early_stopping": True, "calibration": "sigmoid", "calibration_folds": 2}
    model, fresh = mlp(**settings), mlp(**settings)
    for y in (many, one, one > 0, many[:, :2], many):
        expected = clone(fresh).fit(x, y)
        found = model.fit(x, y)
        assert found.predict(x).shape == np.shape(y)
        for name in ("decision_function", "predict", "predict_proba"):
            np.testing.assert_array_equal(getattr(found, name)(x), getattr(expected, name)(x))
        assert vars(found).keys() == vars(expected).keys()
    plain = model.set_params(early_stopping=False, calibration=None).fit(x, one)
    assert vars(plain).keys() == vars(mlp(max_iter=3).fit(x, one)).keys()


@pytest.mark.parametrize("turn", [1, -1])
def test_warm_start_keeps_to_one_class_or_several_labels(turn):
    x, many = labels(200)
    first, second = [many[:, :2], many[:, 0]][::turn]
    model = mlp(max_iter=3, warm_start=True).fit(x, first)
    before = model.predict(x)
    for go_on in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=r"^y must have .*, as of the f.*, got shape "):
            go_on(x, second)
    np.testing.assert_array_equal(model.predict(x), before)
    assert model.fit(x, first).n_iter_ == 6


@pytest.mark.parametrize("weights", [False, True])
def test_warm_start_goes_on(weights):
    x, y = data(300, 3)
    weight = np.linspace(0.5, 1.5, 300) if weights else None
    whole = mlp(max_iter=20, n_iter_no_change=99).fit(x, NAMES[y], weight)
    warm = mlp(max_iter=10, n_iter_no_change=99, warm_start=True).fit(x, NAMES[y], weight)
    assert warm.n_iter_ == 10
    warm.fit(x, NAMES[y], weight)
    assert warm.n_iter_ == 20
    np.testing.assert_allclose(warm.loss_curve_, whole.loss_curve_)
    np.testing.assert_array_equal(warm.decision_function(x), whole.decision_function(x))
    with pytest.raises(ValueError, match=r"^y must hold classes of the fit before, .* got 'oak'$"):
        warm.fit(x[:2], ["ash", "oak"])
    with pytest.raises(ValueError, match="features"):
        warm.fit(x[:, :2], NAMES[y])


@pytest.mark.parametrize("weighted", [False, True])
def test_early_stopping_ends_with_the_best_network(weighted):
    """Its loss on the held-out rows is the least of the curve, not the last one."""
    x, y = data(300)
    weights = np.linspace(0.5, 1.5, 300) if weighted else None
    model = mlp(early_stopping=True, validation_fraction=0.3, learning_rate=0.1, max_iter=30).fit(x, y, weights)
    _, held = model._hold_out(x, y, weights)
    curve = model.validation_loss_curve_
    assert min(curve) < 0.98 * curve[-1]
    training = model._training
    assert float(training._loss(training.logits(held[0]), *training._targets(*held[1:]))) == pytest.approx(min(curve))


def test_class_weights_are_row_weights():
    x, y = data(300, 3)
    expected = mlp(max_iter=5).fit(x, y, sample_weight=np.array([1.0, 2.0, 5.0])[y])
    found = mlp(max_iter=5, class_weight={"ash": 1, "birch": 2, "cedar": 5}).fit(x, NAMES[y])
    np.testing.assert_array_equal(found.decision_function(x), expected.decision_function(x))
    rare = np.flatnonzero((y != 0) | (np.arange(300) % 8 == 0))
    balanced, plain = (mlp(class_weight=w).fit(x[rare], y[rare]) for w in ("balanced", None))
    assert (balanced.predict(x) == 0).sum() > (plain.predict(x) == 0).sum()


def test_a_temperature_for_every_class_beside_weights():
    x, y = data(200, 3)
    settings = {"tau": [1.0, 2.0, 3.0], "max_iter": 3}
    without, twice = mlp(**settings).fit(x, y), mlp(**settings).fit(x, y, sample_weight=np.full(len(y), 2.0))
    np.testing.assert_allclose(twice.decision_function(x), without.decision_function(x), atol=1e-6)


def test_warm_start_takes_what_was_set_since():
    x, y = data(200, 3)
    model = mlp(warm_start=True, max_iter=2).fit(x, y)
    before = model.decision_function(x)
    model.set_params(learning_rate=0.0, alpha=0.0).fit(x, y)
    np.testing.assert_array_equal(model.decision_function(x), before)
    model.partial_fit(x, y)
    np.testing.assert_allclose(model.decision_function(x), before)
    for change in ({"hidden_layer_sizes": (7,)}, {"activation": "tanh"}):
        (name,) = change
        other = mlp(warm_start=True, max_iter=2).fit(x, y).set_params(**change)
        with pytest.raises(ValueError, match=f"{name} must be .*, as in the training that goes on, got "):
            other.fit(x, y)
