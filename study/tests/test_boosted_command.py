"""The study of boosted trees by its command: run, resume, compare, report, move."""
# ruff: noqa: E402  (the study imports LightGBM, which may be missing)

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

lgb = pytest.importorskip("lightgbm")

from boosted_runs import CONFIG, numbers
from hypersimplex_study import engines
from hypersimplex_study.cli import app
from hypersimplex_study.engines import InProcess, Processes
from hypersimplex_study.figures import overview_figure
from hypersimplex_study.page import figure_files
from hypersimplex_study.report import gather, render
from hypersimplex_study.results import result
from hypersimplex_study.stats import cells
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime
from tests.boosting.problems import data as problem


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
