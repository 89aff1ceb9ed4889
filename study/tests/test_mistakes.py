"""Slips of the command line: refused before anything is written or trained, and nothing is lost by them."""

import gzip
import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hypersimplex_study import catalog, checkpoint
from hypersimplex_study.config import RunConfig
from hypersimplex_study.report import gather, render
from hypersimplex_study.store import Store
from hypersimplex_study.sweep import Study
from test_cli import call
from test_false import fill
from trainings import epoch

SMALL = ["--epochs", "1", "--width", "8", "--batch-size", "512", "--threads", "1", "--seed", "0", "--loss", "mse"]
REFUSED = "the report must be another file than the store, got"


@pytest.mark.parametrize("name", ["study.sqlite", "study.html"])
@pytest.mark.parametrize("how", ["itself", "a link", "a hard link"])
def test_a_report_never_replaces_its_store(tmp_path, name, how):
    path, output = tmp_path / name, tmp_path / name
    with Store(path) as store:
        fill(store, RunConfig(epochs=1))
    if how != "itself":
        output = tmp_path / "link"
        (output.symlink_to if how == "a link" else output.hardlink_to)(path)
    figures = tmp_path / "figures"
    text = call("study", "report", "--store", path, "-o", output, "--figures", figures, code=1)
    assert f"{REFUSED} {output}" in " ".join(text.split())
    assert not figures.exists()
    if path.suffix == ".html":
        assert REFUSED in call("study", "report", "--store", path, code=1)
    assert "1 runs, 1 trainings" in call("study", "status", "--store", path)


def test_a_study_whose_report_would_replace_its_store_does_not_begin(tmp_path):
    assert REFUSED in call("study", "run", *SMALL, "--store", tmp_path / "s.html", code=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lr", "1e400"], "lr must be finite, got inf"),
        (["--lr", "nan"], "lr must be finite, got nan"),
        (["--tau", "1", "--tau", "inf"], "tau must be finite, got inf"),
        (["--loss", "hypersimplex", "--prior", "nan"], "prior must be between 0 and 1, got nan"),
        (["--validation", "nan"], "validation must be finite, got nan"),
        (["--validation", "1.5"], "validation must be at least 0 and below 1, got 1.5"),
        (["--batch-size", "0"], "batch_size must be at least 1, got 0"),
        (["--min-steps", "0"], "min_steps must be at least 1, got 0"),
        (
            ["--metric", "log-loss", "--validation", "0"],
            "validation must be above 0 with metric log-loss, which it calibrates, got 0",
        ),
        (["--network", "lightgbm", "--loss", "cross-entropy"], "loss must be one of binary, squared-error"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_a_setting_no_run_could_have_is_refused_before_data_is_read(tmp_path, options, message):
    """Without --epochs and --batch-size, which would switch off what is fitted to the data."""
    text = call("study", "run", *options, "--threads", "1", "--store", tmp_path / "s.sqlite", code=1)
    assert message in " ".join(text.split())
    assert list(tmp_path.iterdir()) == []


def test_momentum_of_a_file_must_be_finite(tmp_path):
    (tmp_path / "s.toml").write_text('momentum = inf\noptimizer = "sgd"\n')
    text = call("study", "run", "--config", tmp_path / "s.toml", "--store", tmp_path / "s.sqlite", code=1)
    assert "momentum must be finite, got inf" in text


def test_rates_that_are_equal_to_six_digits_are_two_settings(store):
    rates = (0.001, 0.0010000001)
    fill(store, *(RunConfig(loss=x, lr=lr, epochs=2) for x in ("cross-entropy", "hypersimplex") for lr in rates))
    assert "| lr 0.0010000001 |" in render(gather(store), "markdown")
    assert [RunConfig(lr=lr).setting() for lr in rates] == ["lr 0.001", "lr 0.0010000001"]
    assert RunConfig(loss="hypersimplex", tau=1.5000001, prior=1 / 3).setting() == (
        "lr 0.001, tau 1.5000001, prior 0.3333333333333333"
    )


def test_a_compared_run_that_is_tuned_with_later_stays_compared(store):
    compared, tuned = RunConfig(seed=0), RunConfig(seed=1)
    store.add_runs([compared])
    store.add_runs([compared, tuned], tuning=True)
    assert [run.tuning for run in store.runs()] == [False, True]
    store.add_runs([tuned])
    assert [run.tuning for run in store.runs()] == [False, False]


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_one_damaged_file_among_good_ones_fails_the_check(tmp_path, monkeypatch, damaged):
    contents = [b"first", b"second", b"third"]
    hashes = [hashlib.sha256(content).hexdigest() for content in contents]
    paths = [tmp_path / f"{number}.gz" for number in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(gzip.compress(content))
    monkeypatch.setattr(catalog, "files", lambda *_: [(p.name, p, h) for p, h in zip(paths, hashes, strict=True)])
    assert call("data", "check", "fashion-mnist").count(": ok") == 3
    paths[damaged].write_bytes(gzip.compress(b"another"))
    assert call("data", "check", "fashion-mnist", code=1).count(": ok") == 2


@pytest.mark.parametrize("others", [("mse", "hinge", "hypersimplex"), ("hypersimplex", "mse", "hinge")])
def test_all_seeds_are_for_the_baseline_there_is(others):
    study = Study(loss=others, seed=(0, 1, 2, 3), secondary_seeds=1)
    seeds = {loss: sum(c.loss == loss for c in study.compared()) for loss in others}
    assert seeds == {"mse": 4, "hypersimplex": 4, "hinge": 1}


def test_starting_again_leaves_the_checkpoints_of_other_studies(tmp_path):
    path = tmp_path / "s.sqlite"
    mine = RunConfig(loss="mse", epochs=1, width=8, batch_size=512)
    theirs = replace(mine, loss="hinge")
    with Store(path) as store:
        store.add_runs([mine, theirs])
        for c in (mine, theirs):
            checkpoint.write(store.work_folder, c.key(), b"damaged")
        call("study", "run", *SMALL, "--no-resume", "--store", path)
        assert checkpoint.read(store.work_folder, theirs.key()) == b"damaged"
        assert store.events() == []  # its own was not even tried


@pytest.fixture
def numbered(tmp_path):
    x = np.random.default_rng(0).normal(size=(200, 2))
    table = pd.DataFrame(x, columns=["a", "b"]).assign(bottle=np.arange(200), y=np.where(x[:, 0] > 0, "yes", "no"))
    table.to_csv(tmp_path / "t.csv", index=False)
    return ["--dataset", tmp_path / "t.csv", "--label", "y", "--store", tmp_path / "s.sqlite"]


def test_boosted_trees_have_losses_notes_and_threads_of_their_own(numbered):
    pytest.importorskip("lightgbm")
    trees = ["--network", "lightgbm", "--threads", "3", "--epochs", "1", "--lr", "0.1", "--seed", "0"]
    text = " ".join(call("study", "run", *trees, *numbered).split())
    assert "column 'bottle' looks like an ID" in text
    assert "cut to" not in text
    with Store(numbered[-1]) as store:
        assert {r.config.loss for r in store.runs()} == {"binary", "hypersimplex"}
        assert {r.provenance["threads"] for r in store.runs()} == {3}


def test_the_other_kind_of_model_takes_its_own_losses_from_a_preset(numbered):
    options = ["--preset", "laptop-tabular", *numbered[:2], "--subset", "100", "--network", "mlp", "--seed", "0"]
    text = call("study", "run", *options, *numbered[2:], "--dry-run")
    assert "losses: cross-entropy, hinge, mse, hypersimplex" in text


@pytest.mark.parametrize("width", [50, 60, 79])
def test_help_in_a_narrow_terminal_cuts_no_name(width):
    words = [sys.executable, "-m", "hypersimplex_study", "study", "run", "--help"]
    environment = os.environ | {"COLUMNS": str(width), "NO_COLOR": "1"}
    text = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for name in ("laptop-tabular", "paper-tabular", "--secondary-seeds"):
        assert name in text or name in text.replace("\n", " ").replace(" ", "")


def test_a_foil_at_another_setting_than_its_training_is_no_error(store, tmp_path):
    fill(store, *(RunConfig(loss=x, lr=0.01, epochs=1) for x in ("cross-entropy", "hypersimplex")))
    fill(store, *(RunConfig(loss=x, lr=0.001, epochs=1) for x in ("cross-entropy", "hypersimplex-argmax")))
    assert "hypersimplex" in render(gather(store), "markdown")
    assert "What to do" in call("study", "compare", "--store", store.path)


def test_after_a_divergence_the_table_still_says_which_epoch_it_shows(store):
    fill(store, *(RunConfig(loss=x, seed=s, epochs=2) for x in ("cross-entropy", "hypersimplex") for s in (0, 1)))
    bad = RunConfig(loss="mse", epochs=2)
    store.add_runs([bad])
    store.record(bad.key(), epoch(0))
    store.finish(bad.key(), "diverged", "the training loss of epoch 1 is nan")
    text = " ".join(call("study", "compare", "--store", store.path).split())
    assert "test set, at the epoch the validation split chose" in text
    assert "last epoch" not in text
