"""Boosted trees in the study: trained by LightGBM, in the same store, report and commands as the networks."""
# ruff: noqa: E402  (the study imports LightGBM, which may be missing)

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import log_loss, roc_auc_score
from typer.testing import CliRunner

lgb = pytest.importorskip("lightgbm")

from hypersimplex.boosting import HyperSimplexObjective
from hypersimplex.cli import app
from hypersimplex.study import boosted, engines
from hypersimplex.study.boosted import ROUNDS, Boosting
from hypersimplex.study.config import TREE_LOSSES, RunConfig
from hypersimplex.study.engines import InProcess, Processes
from hypersimplex.study.figures import overview_figure
from hypersimplex.study.page import figure_files
from hypersimplex.study.report import gather, render
from hypersimplex.study.results import result
from hypersimplex.study.samples import Data
from hypersimplex.study.stats import cells
from hypersimplex.study.store import Store
from hypersimplex.study.train import Runtime
from tests.boosting.problems import data as problem

ONE = Runtime(threads=1)
CONFIG = RunConfig(dataset="made", network="lightgbm", width=7, loss="hypersimplex", lr=0.2, epochs=3, validation=0.25)


def made(n=900, name="made", features=6):
    x, y = problem(n, features=features)
    x, cut = x.astype(np.float32), n * 2 // 3
    return Data(name, x[:cut], y[:cut], x[cut:], y[cut:], ("no", "yes"))


def run(config, data=None):
    training = Boosting(config, data or made(), ONE)
    while not training.finished:
        training.run_epoch()
    return training


def numbers(history):
    return [replace(e, seconds=0.0) for e in history]


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
    np.testing.assert_array_equal(boosted.calibrated(np.zeros(3), scores[:3], scores[:2]), [0, 0])


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


@pytest.fixture
def folder(tmp_path):
    """Real loaders on small files: a stand-in and a set that is none."""
    x, y = problem(500)
    names = [f"f{i}" for i in range(6)]
    pd.DataFrame(x.astype(np.float32), columns=names).assign(label=y, source="s").to_parquet(
        tmp_path / "higgs-sample.parquet"
    )
    pd.DataFrame(x, columns=names).assign(income=np.where(y, ">50K", "<=50K")).to_parquet(
        tmp_path / "adult.parquet.brotli"
    )
    return tmp_path


def call(*arguments, code=0):
    outcome = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert outcome.exit_code == code, (outcome.output, outcome.exception)
    return re.sub(r"\x1b\[[0-9;]*m", "", outcome.output)


QUICK = [
    "--preset",
    "laptop-tabular",
    "--dataset",
    "higgs-sample",
    "--dataset",
    "adult",
    "--epochs",
    "2",
    "--threads",
    "1",
]
QUICK += ["--seed", "0", "--seed", "1", "--lr", "0.1", "--lr", "0.2"]


@pytest.fixture
def filled(folder):
    engines.load_cached.cache_clear()
    path = folder / "s.sqlite"
    call("study", "run", *QUICK, "--data-folder", folder, "--store", path)
    return path


def test_the_preset_runs_resumes_and_compares(filled, folder):
    again = call("study", "run", *QUICK, "--data-folder", folder, "--store", filled)
    assert "runs: 0 epochs to do" in again
    assert "difference to binary" in " ".join(again.split())
    with Store(filled) as store:
        runs = store.runs()
        assert len(runs) == 2 * 5 * (2 + 2)
        assert {r.state for r in runs} == {"done"}
        assert runs[0].provenance["lightgbm"] == lgb.__version__
        chosen = cells([result(r, r.config.dataset) for r in runs])
        assert {(c.measure, c.baseline, c.batch_size) for c in chosen} == {("auc", "binary", 0)}
        picture = overview_figure("overview", chosen)
        assert "hypersimplex on adult: " in picture
    compared = call("study", "compare", "--store", filled)
    for title in ("AUC", "error rate, %", "log loss after calibration"):
        assert title in compared
    assert "higgs-sample" in call("study", "status", "--store", filled)
    against = call("study", "compare", "--store", filled, "--baseline", "hypersimplex")
    assert "difference to hypersimplex" in " ".join(against.split())


def test_the_report_shows_auc_first_and_names_the_stand_in(filled, tmp_path):
    with Store(filled) as store:
        rows = json.loads(render(gather(store), "json"))["rows"]
        table = list(csv.DictReader(io.StringIO(render(gather(store), "csv"))))
        page, text = render(gather(store), "html"), render(gather(store), "markdown")
        names = set(figure_files(gather(store)))
    assert (
        [r["measure"] for r in table]
        == [r["measure"] for r in rows]
        == ["auc"] * 10 + ["error"] * 10 + ["log_loss"] * 10
    )
    assert {r["published"] for r in rows} == {None}
    assert text.index("| AUC |") < text.index("| error rate, % |") < text.index("| log loss after calibration |")
    assert "- higgs-sample: A stand-in for higgs, not that set" in text
    assert "A stand-in for higgs, not that set" in page
    assert "The difference of hypersimplex to binary on adult is " in text
    assert names >= {"overview.svg", "adult-curves.svg", "higgs-sample-difference.svg"}
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    call("study", "report", "--store", filled, "-o", tmp_path / "r.html", "--figures", tmp_path / "figures")
    assert (tmp_path / "figures/overview.svg").read_text().startswith("<svg")


def test_export_and_import_move_it(filled, folder, tmp_path):
    (tmp_path / "x.csv").write_text(call("study", "export", "--store", filled, "--format", "csv"))
    call("study", "import", tmp_path / "x.csv", "--store", tmp_path / "other.sqlite")
    with Store(filled) as one, Store(tmp_path / "other.sqlite") as other:
        assert render(gather(one), "csv") == render(gather(other), "csv")
    moved = call("study", "run", *QUICK, "--data-folder", folder, "--store", tmp_path / "other.sqlite")
    assert "runs: 0 epochs to do" in moved


def test_an_interrupted_training_starts_again(folder, tmp_path):
    config = replace(CONFIG, dataset="higgs-sample", width=31, epochs=3)
    runtime = Runtime(threads=1, data_folder=str(folder))
    engines.load_cached.cache_clear()
    with Store(tmp_path / "a.sqlite") as whole, Store(tmp_path / "b.sqlite") as cut:
        whole.add_runs([config])
        InProcess().run(whole, [config], runtime, lambda *_: None)
        cut.add_runs([config])

        def stop(*_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            InProcess().run(cut, [config], runtime, stop)
        assert len(cut.epochs(config.key())) == 1
        Processes(1).run(cut, [config], runtime, lambda *_: None)
        assert cut.state(config.key()) == "done"
        assert numbers(cut.epochs(config.key())) == numbers(whole.epochs(config.key()))


def test_a_dry_run_says_how_long_it_takes(folder, tmp_path):
    engines.load_cached.cache_clear()
    output = call("study", "run", *QUICK, "--dry-run", "--data-folder", folder, "--store", tmp_path / "none.sqlite")
    assert re.search(r"40 trainings, about \d+ (s|min) with --processes 1", output)
    assert "most stop early" in output


def test_ones_own_table_with_two_classes(folder):
    path = folder / "own.csv"
    x, y = problem(300)
    pd.DataFrame(x).assign(y=np.where(y, "yes", "no")).to_csv(path, index=False)
    options = ["--dataset", path, "--label", "y", "--network", "lightgbm", "--loss", "binary", "--loss", "hypersimplex"]
    output = call(
        "study", "run", *options, "--epochs", "2", "--threads", "1", "--lr", "0.1", "--store", folder / "own.sqlite"
    )
    assert "difference to binary" in " ".join(output.split())


def test_a_missing_file_fails_its_runs_and_says_what_to_do(tmp_path):
    store = tmp_path / "s.sqlite"
    quick = ["--preset", "paper-tabular", "--dataset", "criteo", "--seed", "0", "--loss", "binary"]
    output = call("study", "run", *quick, "--data-folder", tmp_path, "--store", store, code=1)
    assert "criteo is not in " in output
    assert "https://huggingface.co/datasets/reczoo/Criteo_x1" in output
