"""Boosted trees in the study: trained by LightGBM, in the same store, report and commands as the networks."""
# ruff: noqa: E402  (the study imports LightGBM, which may be missing)

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import log_loss, roc_auc_score

lgb = pytest.importorskip("lightgbm")

from boosted_runs import CONFIG, ONE, made, numbers, run
from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex_study import boosted
from hypersimplex_study.boosted import ROUNDS, Boosting
from hypersimplex_study.config import TREE_LOSSES
from tests.boosting.problems import data as problem


@pytest.mark.parametrize("loss", TREE_LOSSES)
def test_the_recorded_measures_are_those_of_the_booster(loss):
    data = made()
    training = run(replace(CONFIG, loss=loss), data)
    last = training.history[-1]
    rounds = ROUNDS * len(training.history)
    scores = training.booster.predict(data.test_x, num_iteration=rounds)
    assert last.test_auc == pytest.approx(roc_auc_score(data.test_y, scores), abs=1e-9)
    if loss.startswith("hypersimplex"):
        rows, _ = boosted.split(data, None, 0.25)
        objective = HyperSimplexObjective(training.config.tau)
        objective.calibrate(data.train_y[rows], training.booster.predict(data.train_x[rows], num_iteration=rounds))
        decided = objective.predict(scores)
    else:
        decided = scores > 0.5
    assert last.test_accuracy == pytest.approx(np.mean(decided == data.test_y), abs=1e-9)
    assert 0.5 < last.val_auc < 1
    assert 0 < last.test_log_loss < np.log(2)


def test_calibration_is_the_best_sigmoid_of_the_validation_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4000) * 1e-3 + 5
    y = rng.random(4000) < 1 / (1 + np.exp(-(2000 * (scores - 5) + 0.5)))
    p = boosted.calibrated(y, scores, scores)
    # the model that made the labels is among the sigmoids, so the fitted one is at least as good
    assert log_loss(y, p) <= log_loss(y, 1 / (1 + np.exp(-(2000 * (scores - 5) + 0.5))))
    assert boosted.log_loss(y, p) == pytest.approx(log_loss(y, p))


def test_a_validation_split_that_is_separable_or_of_one_class_leaves_doubt():
    rng = np.random.default_rng(0)
    y, held = np.repeat([0, 1], 12), np.r_[rng.normal(-2, 0.5, 12), rng.normal(2, 0.5, 12)]
    # Platt's targets, (n + 1) / (n + 2), are met where the scores have two values
    np.testing.assert_allclose(boosted.calibrated(y, 3.0 * y, np.array([0.0, 3.0])), [1 / 14, 13 / 14], rtol=1e-3)
    test = np.r_[rng.normal(-2, 1.2, 500), rng.normal(2, 1.2, 500)]
    assert log_loss(np.repeat([0, 1], 500), boosted.calibrated(y, held, test)) < 0.25
    for spread in (0.0, 1.0):
        constant = boosted.calibrated(np.zeros(3), spread * held[:3], held[:2])
        np.testing.assert_allclose(constant, [1 / 5, 1 / 5], rtol=1e-3)


def test_losses_are_lightgbms_own_and_the_objective():
    data = made()
    rows, _ = boosted.split(data, None, 0.25)
    settings = {**boosted.BINS, **boosted.SETTINGS["lightgbm"], "num_leaves": 7, "learning_rate": 0.2, "seed": 0}
    settings |= {"num_threads": 1, "deterministic": True}
    for loss, objective in (
        ("binary", "binary"),
        ("squared-error", "regression"),
        ("hypersimplex", HyperSimplexObjective()),
    ):
        mine = run(replace(CONFIG, loss=loss, validation=0.25), data)
        n = ROUNDS * len(mine.history)
        theirs = lgb.train({**settings, "objective": objective}, lgb.Dataset(data.train_x[rows], data.train_y[rows]), n)
        np.testing.assert_allclose(mine.booster.predict(data.test_x), theirs.predict(data.test_x), atol=1e-9)


def test_the_papers_step_is_that_of_its_scripts():
    training = Boosting(
        replace(CONFIG, loss="hypersimplex-paper", network="lightgbm-paper", dataset="higgs"), made(), ONE
    )
    assert (training.config.width, training.config.tau) == (250, 0.001)
    # 450 training rows; the gradient of the mean squared error is 2/450 of the objective's
    assert training.learning_rate() == pytest.approx(0.2 * 2 / 450)
    other = Boosting(replace(CONFIG, loss="hypersimplex-paper"), made(), ONE)
    assert other.learning_rate() == pytest.approx(0.2 * 2 / 450 * 0.001)


def test_seeds_differ_and_repeat():
    first, again, other = (run(replace(CONFIG, seed=s)) for s in (0, 0, 1))
    assert numbers(first.history) == numbers(again.history)
    assert numbers(first.history) != numbers(other.history)


def test_it_stops_when_the_validation_auc_stays_behind():
    training = run(replace(CONFIG, epochs=100, lr=0.5))
    best = max(e.val_auc for e in training.history)
    assert [e.val_auc for e in training.history].index(best) == len(training.history) - 1 - 3


def test_a_publishers_validation_split_is_used():
    whole = made()
    x, y = problem(300, seed=5)
    data = replace(whole, validation=(x.astype(np.float32), y))
    training = Boosting(CONFIG, data, ONE)
    assert training.sizes["train"] == 600
    assert training.sizes["validation"] == 300


def test_rows_on_disk_and_sparse_rows_give_the_same_trees(tmp_path):
    data = made()
    data.train_x.tofile(tmp_path / "x")
    mapped = replace(data, train_x=np.memmap(tmp_path / "x", np.float32, "r").reshape(data.train_x.shape))
    assert isinstance(mapped.train_x, np.memmap)
    expected = numbers(run(CONFIG, data).history)
    assert numbers(run(CONFIG, mapped).history) == expected
    assert numbers(run(replace(CONFIG, subset=500), mapped).history) == numbers(
        run(replace(CONFIG, subset=500), data).history
    )
    thin = replace(data, train_x=sparse.csr_matrix(data.train_x), test_x=sparse.csr_matrix(data.test_x))
    assert [e.test_auc for e in run(CONFIG, thin).history] == pytest.approx([e.test_auc for e in expected], abs=1e-6)


def test_more_rows_than_there_are_means_all():
    assert Boosting(replace(CONFIG, subset=10**6), made(), ONE).sizes["train"] == 450


def test_three_classes_are_refused():
    data = replace(made(), classes=("a", "b", "c"))
    with pytest.raises(ValueError, match="network lightgbm needs rows of numbers in two classes, got 3 in made"):
        Boosting(CONFIG, data, ONE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of binary, squared-error, hypersimplex, .*, got 'hinge'"),
        ({"network": "mlp", "loss": "binary"}, "loss must be one of cross-entropy, .*hinge, .*, got 'binary'"),
    ],
)
def test_a_loss_of_the_other_kind_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)
