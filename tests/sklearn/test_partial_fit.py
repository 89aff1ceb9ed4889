"""The perceptron trained call by call."""

import pickle

import numpy as np
import pytest

pytest.importorskip("torch")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from tests.boosting.problems import data
from tests.sklearn.models import NAMES, mlp


def still(**settings):
    """A network that does not move, so that thresholds of several calls can be compared."""
    return mlp(learning_rate=1e-9, **settings)


def test_learns_and_goes_on_after_a_pickle():
    x, y = data(1200, 3)
    model = mlp()
    for _ in range(10):
        for part in np.array_split(np.arange(900), 3):
            model.partial_fit(x[part], NAMES[y[part]], classes=NAMES[:3])
    assert model.score(x[900:], NAMES[y[900:]]) > 0.6
    assert model.n_iter_ == 30
    again = pickle.loads(pickle.dumps(model)).partial_fit(x, NAMES[y])
    np.testing.assert_array_equal(again.decision_function(x), model.partial_fit(x, NAMES[y]).decision_function(x))


def test_a_class_that_is_missing_keeps_its_threshold():
    x, y = data(300, 3)
    model = still().partial_fit(x, y)
    before = model.threshold_.copy()
    only = np.flatnonzero(y != 2)[:50]
    model.partial_fit(x[only], y[only])
    assert model.threshold_[2] == before[2]
    assert (model.threshold_[:2] != before[:2]).all()


def test_a_class_that_comes_late_starts_from_its_own_threshold():
    x, y = data(300, 3)
    model, early = still(), y != 2
    for _ in range(3):
        model.partial_fit(x[early], NAMES[y[early]], classes=NAMES[:3])
    assert model.threshold_[2] == np.inf
    assert set(model.predict(x)) == {"ash", "birch"}
    model.partial_fit(x, NAMES[y])
    np.testing.assert_allclose(model.threshold_[2], still().partial_fit(x, NAMES[y]).threshold_[2], atol=1e-5)


def test_a_class_without_weight_is_missing():
    x, y = data(200)
    model = still().partial_fit(x, y)
    before = model.threshold_.copy()
    model.partial_fit(x[:50], y[:50], sample_weight=(y[:50] == 0) * 1.0)
    np.testing.assert_array_equal(model.threshold_, before)


@pytest.mark.parametrize("classes", [2, 3])
def test_no_decision_from_classes_that_never_met(classes):
    x, y = data(200, classes)
    model = mlp()
    for one in range(classes):
        model.partial_fit(x[y == one], y[y == one], classes=np.arange(classes))
    for decide in (model.predict, model.decision_function):
        with pytest.raises(NotFittedError, match="no call of partial_fit has held both"):
            decide(x)
    assert np.isfinite(model.partial_fit(x, y).decision_function(x)).all()


def test_fit_counts_in_the_average():
    x, y = data(300)
    model = mlp(max_iter=20).fit(x, y).set_params(tau=0.5)
    before = model.decision_function(x)
    assert model.tau_ == 1.0
    model.partial_fit(x[:50], y[:50])
    assert model.tau_ == 0.5
    # Fifty rows after three hundred: otherwise they would move it by more.
    assert np.abs(model.decision_function(x) * 0.5 - before).max() < 1


def test_thresholds_follow_the_last_thousand_rows():
    x, y = data(1600)
    own = [
        still().partial_fit(x[part], y[part]).threshold_ for part in (slice(400), slice(400, 1400), slice(1400, 1600))
    ]
    model = still().partial_fit(x[:400], y[:400])
    model.partial_fit(x[1400:], y[1400:])  # 200 of the 600 so far
    np.testing.assert_allclose(model.threshold_, own[0] * 2 / 3 + own[2] / 3, atol=1e-5)
    model.partial_fit(x[400:1400], y[400:1400])  # 1,000, and all before is forgotten
    np.testing.assert_allclose(model.threshold_, own[1], atol=1e-5)
    model.partial_fit(x[1400:], y[1400:])  # 200 of the last 1,000
    np.testing.assert_allclose(model.threshold_, own[1] * 0.8 + own[2] * 0.2, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_thresholds_follow_as_those_of_the_loss_module_do(classes):
    """Around the sizes at which a batch's weight is at its least, 0.1, and at its most, 1."""
    torch = pytest.importorskip("torch")
    from hypersimplex.torch import HyperSimplexLoss

    sizes = [400, 30, 700, 50, 99, 100, 101, 12, 1001, 20]
    x, y = data(sum(sizes), classes)
    model, criterion = still(), HyperSimplexLoss(num_classes=1 if classes == 2 else classes).double()
    for rows in np.split(np.arange(len(x)), np.cumsum(sizes)[:-1]):
        model.partial_fit(x[rows], y[rows], classes=np.arange(classes))
        logits = torch.from_numpy(model._raw(x[rows])).double()
        target = torch.from_numpy(y[rows])
        criterion(logits.requires_grad_(), target[:, None].double() if classes == 2 else target)
        np.testing.assert_allclose(model.threshold_, criterion.threshold, atol=1e-5)


def test_labels_and_classes_of_the_first_call():
    x, y = data(60, 3)
    model = mlp().partial_fit(x, NAMES[y])
    with pytest.raises(ValueError, match=r"^y must hold classes of the first call, .*'cedar'\], got 'oak'$"):
        model.partial_fit(x[:5], ["oak"] * 5)
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        model.partial_fit(x, NAMES[y], classes=NAMES)
    model.partial_fit(x, NAMES[y], classes=NAMES[[2, 0, 1]])  # the order does not matter
    with pytest.raises(ValueError, match=r"classes must hold at least 2 classes, got \['ash'\]"):
        mlp().partial_fit(x, NAMES[y * 0])
    broken = mlp()
    with pytest.raises(ValueError, match="got 'cedar'"):
        broken.partial_fit(x, NAMES[y], classes=NAMES[:2])
    broken.partial_fit(x, NAMES[y], classes=NAMES[:3])  # a call that failed was no first call


def test_probabilities_need_fit():
    x, y = data(120)
    model = mlp(calibration="sigmoid", calibration_folds=2, max_iter=3)
    with pytest.raises(NotFittedError, match="predict_proba needs a call of fit with calibration='sigmoid'"):
        clone(model).partial_fit(x, y).predict_proba(x)
    model.fit(x, y).predict_proba(x)
    with pytest.raises(NotFittedError, match="partial_fit does not calibrate"):
        model.partial_fit(x, y).predict_proba(x)


def test_a_batch_of_classes_has_their_weights():
    x, y = data(200)
    weighted = still(class_weight={0: 1.0, 1: 3.0}).partial_fit(x, y)
    np.testing.assert_allclose(weighted.threshold_, still().partial_fit(x, y, sample_weight=1.0 + 2 * y).threshold_)
    with pytest.raises(ValueError, match=r"^class_weight must be None or weights for partial_fit, got 'balanced'$"):
        still(class_weight="balanced").partial_fit(x, y)


def test_labels_call_by_call():
    x, y = data(300, 3)
    labels = np.stack([y == 0, y != 1, y < 0], 1).astype(int)
    model = still().partial_fit(x, labels)
    assert np.isfinite(model.threshold_[:2]).all()
    assert model.threshold_[2] == np.inf  # no row has had it
    assert not model.predict(x)[:, 2].any()
    with pytest.raises(
        ValueError, match=r"^y must have 3 columns of labels, as of the first call, got shape \(300, 2\)$"
    ):
        model.partial_fit(x, labels[:, :2])
    with pytest.raises(
        ValueError, match=r"^y must have 3 columns of labels, as of the first call, got shape \(300,\)$"
    ):
        model.partial_fit(x, y)
