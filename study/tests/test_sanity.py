"""The yardstick of logistic regression, by the measure that the study is compared by."""

import numpy as np
import pytest
from sklearn import metrics
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from hypersimplex_study.batches import split
from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load_cached
from hypersimplex_study.measures import METRICS
from hypersimplex_study.records import Epoch, Run
from hypersimplex_study.samples import Data
from hypersimplex_study.sanity import logistic_regression, sentence

RNG = np.random.default_rng(1)


def run(metric, **scores):
    both = {f"{part}_{name}": value for name, value in scores.items() for part in ("val", "test")}
    epoch = Epoch(
        0, 1.0, 0.1, **{"val_accuracy": 0.9, "test_accuracy": 0.9} | both, val_argmax=0, test_argmax=0, seconds=1
    )
    config = RunConfig(epochs=1)
    return Run(config.key(), config.key(), config, False, "done", 1, None, {}, (epoch,), metric)


@pytest.fixture
def uneven():
    """Rows in two classes, one of them rare; the third class is in no training row."""
    x = RNG.normal(size=(400, 3)).astype(np.float32)
    y = (x[:, 0] + RNG.normal(size=400) > 1.5).astype(np.int64)
    return Data("uneven", x[:300], y[:300], x[300:], y[300:], ("no", "yes", "never"))


def test_it_is_measured_as_scikit_learn_measures(uneven):
    found = logistic_regression(uneven, None, 0.2)
    rows, _ = split(uneven, None, 0.2)
    scale = StandardScaler().fit(uneven.train_x[rows].astype(float))
    model = LogisticRegression(max_iter=1000).fit(scale.transform(uneven.train_x[rows]), uneven.train_y[rows])
    test = scale.transform(uneven.test_x.astype(float))
    decided, y = model.predict(test), uneven.test_y
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, decided))
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(y, model.decision_function(test)))
    assert found["f1"] == pytest.approx(metrics.f1_score(y, decided, average="macro"))
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, decided))
    # Calibrated on the validation split, so near to what the regression itself gives, not equal to it.
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, model.predict_proba(test)), rel=0.2)


def test_without_a_validation_split_it_has_no_log_loss(uneven):
    found = logistic_regression(uneven, None, 0.0)
    assert set(found) == {"accuracy", "balanced_accuracy", "f1", "auc"}


def test_one_class_is_no_yardstick(uneven):
    alone = Data("alone", uneven.train_x, 0 * uneven.train_y, uneven.test_x, uneven.test_y, uneven.classes)
    assert logistic_regression(alone, None, 0.2) is None


SAID = {
    "accuracy": "96.50 % accuracy",
    "auc": "0.9650 AUC",
    "log_loss": "0.9650 log loss after calibration",
    "f1": "96.50 % F1, mean over the classes",
    "balanced_accuracy": "96.50 % balanced accuracy",
}


@pytest.mark.parametrize("metric", METRICS)
def test_the_sentence_is_about_the_metric(metric):
    found = dict.fromkeys(METRICS, 0.2) | {metric: 0.965}
    said = sentence("digits", found, [run(metric, **dict.fromkeys(METRICS, 0.5) | {metric: 0.965})])
    assert f"standardized inputs: {SAID[metric]}; the networks: " in said
    assert "behind" not in said
    assert said.count("0.9650" if metric in ("auc", "log_loss") else "96.50 %") == 2


@pytest.mark.parametrize(
    ("metric", "networks", "behind"),
    [
        ("accuracy", 0.7801, False), ("accuracy", 0.7799, True), ("accuracy", 0.9, False),
        ("auc", 0.7961, False), ("auc", 0.7959, True), ("auc", 0.9, False),
        ("log_loss", 0.8199, False), ("log_loss", 0.8201, True), ("log_loss", 0.1, False),
    ],
)  # fmt: skip
def test_networks_that_are_behind_are_told(metric, networks, behind):
    said = sentence("digits", {metric: 0.8}, [run(metric, **{metric: networks})])
    assert ("behind it" in said) == behind


def test_without_a_value_of_that_metric_it_says_nothing():
    assert sentence("digits", {"accuracy": 0.8}, [run("log_loss")]) is None


def test_the_digits_are_easy():
    found = logistic_regression(load_cached("digits", None, None), None, 0.1)
    assert found["accuracy"] > 0.9
    assert found["auc"] > 0.99
