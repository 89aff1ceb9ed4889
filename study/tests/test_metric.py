"""Other measures than accuracy, to choose and to compare by."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn import metrics

from hypersimplex_study import evaluation
from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load_cached
from hypersimplex_study.measures import MEASURES
from hypersimplex_study.records import Epoch, Run
from hypersimplex_study.results import best_epoch, results
from hypersimplex_study.stats import cells
from hypersimplex_study.store import Store
from hypersimplex_study.sweep import Study
from hypersimplex_study.train import Runtime, Training
from hypersimplex_study.verdict import verdict
from test_cli import call

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("classes", [2, 5])
def test_measures_are_those_of_scikit_learn(classes):
    y = RNG.integers(0, classes, 200)
    scores = RNG.normal(size=(200, classes)) + 1.5 * np.eye(classes)[y]
    decided = scores.argmax(1)
    found = evaluation.by_decision(y, decided)
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, decided))
    assert found["f1"] == pytest.approx(metrics.f1_score(y, decided, average="macro"))
    p = softmax(scores, axis=1)
    area = metrics.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr")
    assert evaluation.auc(y, scores) == pytest.approx(area)
    assert evaluation.log_loss(y, scores, 1.0) == pytest.approx(metrics.log_loss(y, p))


def test_a_class_that_is_not_there_does_not_count():
    y, decided = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    found = evaluation.by_decision(y, decided)
    assert found["balanced_accuracy"] == pytest.approx(0.75)
    assert found["f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_the_scale_of_the_scores_does_not_matter_to_the_log_loss():
    y = RNG.integers(0, 3, 500)
    scores = RNG.normal(size=(500, 3)) + np.eye(3)[y]
    losses = [evaluation.log_loss(y, c * scores, evaluation.temperature(y, c * scores)) for c in (0.01, 1.0, 30.0)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)
    for t in (0.8, 1.2):
        best = evaluation.temperature(y, scores)
        assert evaluation.log_loss(y, scores, best) < evaluation.log_loss(y, scores, t * best)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_validation_split_without_an_error_does_not_make_the_log_loss_explode(classes):
    rng = np.random.default_rng(0)

    def draw(n, noise):
        y = np.arange(n) % classes
        return y, 2 * np.eye(classes)[y] + noise * rng.normal(size=(n, classes))

    held, test = draw(40, 0.1), draw(1000, 0.8)
    fitted = evaluation.temperature(*held)
    best = min(evaluation.log_loss(*test, t) for t in np.geomspace(1e-3, 1e3, 200))
    assert evaluation.log_loss(*test, fitted) < 1.5 * best


@pytest.mark.parametrize("loss", ["cross-entropy", "hypersimplex"])
def test_an_epoch_of_a_network_has_them_all(loss):
    config = RunConfig(loss=loss, epochs=1, width=16, batch_size=128)
    training = Training(config, load_cached("digits", None, None), Runtime(threads=1))
    epoch = training.run_epoch()
    here = training.prepared
    with torch.no_grad():
        logits = training.logits(training.inputs(here.test, torch.arange(len(here.test_y))))
        decided, plain = training.loss.predict(logits), logits.argmax(1)
    y = here.test_y.numpy()
    assert epoch.test_f1 == pytest.approx(metrics.f1_score(y, decided, average="macro"))
    assert 0.5 < epoch.test_auc <= 1
    assert 0.5 < epoch.val_auc <= 1
    assert epoch.test_log_loss > 0
    assert epoch.test_f1_argmax == pytest.approx(metrics.f1_score(y, plain, average="macro"))


def run(loss, seed, values, metric):
    epochs = tuple(
        Epoch(i, 1.0, 0.1, 0.5, 0.5, 0.4, 0.4, 0.1, val_f1=v, test_f1=v, val_log_loss=v, test_log_loss=v)
        for i, v in enumerate(values)
    )
    config = RunConfig(loss=loss, seed=seed, epochs=len(values))
    return Run(config.key(), config.key(), config, False, "done", 1, None, {}, epochs, metric)


def test_a_low_log_loss_is_better_and_a_high_f1():
    assert best_epoch(run("mse", 0, [0.5, 0.3, 0.4], "log_loss")) == 1
    assert best_epoch(run("mse", 0, [0.5, 0.3, 0.4], "f1")) == 0
    for metric, word in (("log_loss", "is better than"), ("f1", "is worse than")):
        runs = [run("cross-entropy", s, [0.5 + s / 1000], metric) for s in range(4)]
        runs += [run("hypersimplex", s, [0.4 + s / 900], metric) for s in range(4)]
        rows = cells(results(runs))
        assert {c.measure for c in rows} == {metric}
        assert word in verdict(rows)


@pytest.mark.parametrize("metric", ["balanced-accuracy", "f1", "auc", "log-loss"])
def test_a_study_of_an_uneven_table_by_another_metric(tmp_path, metric):
    x = RNG.normal(size=(300, 3))
    table = pd.DataFrame(x, columns=list("abc")).assign(y=np.where(x[:, 0] + x[:, 1] > 1.5, "yes", "no"))
    table.to_csv(tmp_path / "t.csv", index=False)
    store = tmp_path / "s.sqlite"
    own = ["--dataset", tmp_path / "t.csv", "--label", "y", "--epochs", "2", "--width", "8", "--batch-size", "64"]
    own += ["--loss", "cross-entropy", "--loss", "hypersimplex", "--seed", "0", "--seed", "1", "--lr", "0.01"]
    output = call("study", "run", *own, "--lr", "0.03", "--metric", metric, "--threads", "1", "--store", store)
    assert output.rstrip().endswith(f"report: {store.with_suffix('.html')}")
    title = MEASURES[metric.replace("-", "_")].title
    line = next(part for part in " ".join(output.split()).split("sanity check")[1:])
    assert f" {title}; the networks" in line
    assert {"auc": "AUC", "log-loss": "log loss", "f1": "F1"}.get(metric, "balanced accuracy") in store.with_suffix(
        ".html"
    ).read_text()
    found = json.loads(call("study", "compare", "--store", store, "--metric", metric, "--json"))
    assert found["advice"].endswith(f"on {tmp_path / 't.csv'} at batch size 64.")
    name = metric.replace("-", "_")
    assert {r["measure"] for r in found["rows"]} == {name}
    with Store(store) as opened:
        tests = [r.scores()[best_epoch(r)][1] for r in opened.runs(name) if r.config.loss == "cross-entropy"]
    (row,) = [r for r in found["rows"] if r["loss"] == "cross-entropy"]
    assert min(tests) <= row["mean"] <= max(tests)
    text = call("study", "report", "--store", store, "--metric", metric, "--format", "markdown")
    assert {"auc": "AUC", "log-loss": "log loss", "f1": "F1"}.get(metric, "balanced accuracy") in text
    call("study", "report", "--store", store, "--metric", metric, "-o", tmp_path / "r.html")


def test_a_metric_that_was_not_recorded_is_said(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        config = RunConfig(epochs=1)
        store.add_runs([config])
        store.record(config.key(), Epoch(0, 1.0, 0.1, 0.5, 0.5, 0.4, 0.4, 0.1))
        store.finish(config.key(), "done")
    for command in ("compare", "report"):
        output = call("study", command, "--store", tmp_path / "s.sqlite", "--metric", "f1", code=1)
        assert "metric must be one that these runs recorded, got f1" in output


def test_a_file_can_name_the_metric():
    assert Study(metric="log-loss").metric == "log_loss"
    with pytest.raises(ValueError, match="metric must be one of accuracy, balanced_accuracy, f1, auc, log_loss, got"):
        Study(metric="precision")
