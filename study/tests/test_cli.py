"""The command, as a person calls it."""

import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from hypersimplex_study import estimate
from hypersimplex_study.cli import app
from hypersimplex_study.config import DESCRIPTIONS, RunConfig
from hypersimplex_study.store import Store, StoreError
from hypersimplex_study.sweep import Study

runner = CliRunner()
QUICK = ["--epochs", "2", "--width", "8", "--batch-size", "512", "--threads", "1", "--seed", "0", "--seed", "1"]
QUICK += ["--loss", "cross-entropy", "--loss", "hypersimplex", "--loss", "hypersimplex-half-argmax"]


def call(*arguments, code=0):
    result = runner.invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == code, (result.output, result.exception)
    # rich breaks lines and colours help; a reader's eye undoes both
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "s.sqlite"
    call("study", "run", *QUICK, "--store", path)
    return path


@pytest.mark.parametrize(
    "command",
    [[], ["study"], ["data"], *(["study", c] for c in ["run", "status", "report", "compare", "export", "import"])]
    + [["data", c] for c in ("list", "fetch", "check")],
    ids=" ".join,
)
def test_help_everywhere(command):
    assert "Usage:" in call(*command, "--help")


def test_help_shows_the_defaults_and_every_variant_at_eighty_columns():
    output = runner.invoke(app, ["study", "run", "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"}).output
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert "…" not in output
    # the column of the help alone, unwrapped
    text = " ".join(re.sub(r"^.*?\s{2,}", "", line.strip("│ ")) for line in output.splitlines())
    for name in DESCRIPTIONS:
        assert name in output
    for field in fields(Study):
        value = getattr(Study(), field.name)
        if value in (None, (), False, {}) or field.name == "momentum":
            continue
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert f"default {shown}" in text, field.name


def test_run_does_what_is_missing_and_shows_a_table(filled):
    output = call("study", "run", *QUICK, "--store", filled)
    assert "runs: 0 epochs to do" in output
    assert "hypersimplex-half-argmax" in output
    more = call("study", "run", *QUICK, "--seed", "2", "--store", filled)
    assert "runs: 6 epochs to do" in more
    assert "Holm's over 1 comparison of hypersimplex, the primary question" in " ".join(more.split())
    assert "Tested over 3 seeds" in " ".join(more.split())
    with Store(filled) as store:
        assert len(store.runs()) == 9
        assert {r.state for r in store.runs()} == {"done"}


def test_run_ends_in_what_to_do_and_the_path_of_the_report(filled):
    report = filled.with_suffix(".html")
    assert "<svg" in report.read_text()
    report.unlink()
    *_, last = call("study", "run", *QUICK, "--store", filled).partition("What to do: ")
    sentence, path = last.strip().rsplit("\n", 1)
    assert " ".join(sentence.split()) == "run 3 seeds or more of both losses on digits at batch size 512."
    assert path == f"report: {report}"
    assert report.exists()


def test_the_report_lies_beside_its_store_unless_told_otherwise(filled, tmp_path):
    filled.with_suffix(".html").unlink()
    assert f"wrote {filled.with_suffix('.html')}" in call("study", "report", "--store", filled)
    assert filled.with_suffix(".html").exists()


def test_export_has_one_row_per_run_and_epoch_and_import_reads_it(filled, tmp_path):
    rows = json.loads(call("study", "export", "--store", filled))
    assert len(rows) == 3 * 2 * 2
    table = list(csv.DictReader(io.StringIO(call("study", "export", "--store", filled, "--format", "csv"))))
    assert [float(r["test_accuracy"]) for r in table] == [r["test_accuracy"] for r in rows]
    file = tmp_path / "export.csv"
    file.write_text(call("study", "export", "--store", filled, "--format", "csv"))
    other = tmp_path / "other.sqlite"
    text = call("study", "import", file, "--store", other)
    assert "imported 6 runs, 0 were finished here before, 0 still to do" in text
    assert "runs: 0 epochs to do" in call("study", "run", *QUICK, "--store", other)
    assert "no_such_file" in call("study", "import", "no_such_file.csv", "--store", other, code=1)


def test_a_half_done_study_moves_and_goes_on(filled, tmp_path):
    with Store(filled) as store:
        key = store.runs()[0].training
        with store._transaction() as db:
            db.execute("UPDATE trainings SET state='running' WHERE key=?", (key,))
            db.execute("DELETE FROM epochs WHERE training=? AND epoch=1", (key,))
        before = {r.key: [t for _, t in r.accuracies()] for r in store.runs()}
    file = tmp_path / "export.json"
    file.write_text(call("study", "export", "--store", filled))
    other = tmp_path / "other.sqlite"
    call("study", "import", file, "--store", other)
    assert "runs: 2 epochs to do" in call("study", "run", *QUICK, "--store", other)
    with Store(other) as store:
        for r in store.runs():
            assert [t for _, t in r.accuracies()][: len(before[r.key])] == before[r.key]
            assert len(r.epochs) == 2


def test_status_compare_and_report(filled, tmp_path):
    assert "6 runs, 6 trainings" in call("study", "status", "--store", filled)
    assert "best epoch on the test set: the paper's rule" in call("study", "compare", "--paper-rule", "--store", filled)
    against = call("study", "compare", "--baseline", "hypersimplex", "--store", filled)
    flat = " ".join(against.split())
    assert "The difference of hypersimplex-half-argmax to hypersimplex on digits at batch size 512 is " in flat
    assert "over 2 seeds; a test needs 3 or more" in flat
    assert "difference to hypersimplex over the seeds that both have, not tested" in flat
    assert "What to do: " in flat
    assert "warning: The learning rate was not tuned" in flat
    assert "baseline must be one of" in call("study", "compare", "--baseline", "mse", "--store", filled, code=1)
    call("study", "report", "--store", filled, "-o", tmp_path / "r.html")
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_dry_run_prints_the_grid_and_runs_nothing(tmp_path):
    output = call("study", "run", "--preset", "demo", "--dry-run", "--threads", "1", "--store", tmp_path / "s.sqlite")
    assert re.search(r"138 trainings, about \d+ (s|min) with --processes 1", output)
    assert not (tmp_path / "s.sqlite").exists()


def test_dry_run_knows_what_is_done_at_the_setting_that_was_chosen(tmp_path, monkeypatch):
    """It plans compared runs at the first setting, and another one may have been chosen."""
    hour = {"loading": 0.0, "train": 1.0, "evaluate": 1.0}  # such small runs take no time that could be seen
    monkeypatch.setattr(estimate, "seconds", lambda runs, _: {c.key(): (3600.0, estimate.Speed(**hour)) for c in runs})
    rates = ("--lr", "1e-6", "--lr", "0.01", "--tuning-seed", "7", "--seed", "1", "--loss", "cross-entropy")
    small = ("--epochs", "2", "--width", "8", "--batch-size", "512", "--threads", "1", "--store", tmp_path / "s.sqlite")
    call("study", "run", *rates, *small)
    with Store(tmp_path / "s.sqlite") as store:
        assert [r.config.lr for r in store.runs() if not r.tuning] == [0.01]
    shown = " ".join(call("study", "run", *rates, *small, "--dry-run").split())
    assert shown.partition(" trainings, ")[2].startswith("about 3 h 00 min with --processes 1, 0 s still to do."), shown


def test_a_toml_file_then_options(tmp_path):
    (tmp_path / "s.toml").write_text('loss = ["mse"]\nepochs = 7\nseed = 1\nwidth = 8\nbatch_size = 512\n')
    call(
        "study",
        "run",
        "--config",
        tmp_path / "s.toml",
        "--epochs",
        "1",
        "--threads",
        "1",
        "--store",
        tmp_path / "s.sqlite",
    )
    with Store(tmp_path / "s.sqlite") as store:
        (run,) = store.runs()
        assert (run.config.loss, run.config.epochs, run.config.seed) == ("mse", 1, 1)
        assert run.provenance["threads"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "hyper"], "loss must be one of cross-entropy, label-smoothing"),
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--prior", "2", "--loss", "mse"], "error: prior must be between 0 and 1, got 2.0"),
        (["--tau", "0", "--loss", "mse"], "error: tau must be positive, got 0.0"),
        (["--tau", "2", "--network", "lightgbm", "--loss", "binary"], "tau must be left out with network lightgbm"),
        (["--engine", "process", "--processes", "2"], "processes must be left out with engine process"),
        (["--engine", "processes", "--address", "auto"], "address must be left out with engine processes"),
        (["--dataset", "mnist", *QUICK], "dataset must be one of digits, fashion-mnist, cifar-10"),
        (["--dataset", "nowhere.csv", *QUICK], "error: nowhere.csv does not exist"),
        (["--device", "nonsense", *QUICK], "device must be one that torch can use here, got 'nonsense'"),
        (["--network", "foo", *QUICK], "error: network must be one of mlp, cnn, paper, speedrun, got 'foo'"),
        (["--subset", "100000", *QUICK], "error: subset must be at most 1438"),
        (["--subset", "12", *QUICK], "error: validation must leave at least one sample, got 0.1 of"),
        (["--validation", "0.0001", *QUICK], "error: validation must leave at least one sample, got 0.0001 of 1438"),
        (
            [*QUICK, "--batch-size", "2000"],
            "batch_size must be at most 1295 (the training samples of digits), got 2000",
        ),
        ([*QUICK, "--batch-size", "1295", "--batch-size", "1296"], "batch_size must be at most 1295"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value[:4]),
)
def test_a_bad_option_is_an_error_in_words(tmp_path, arguments, message):
    output = call("study", "run", *arguments, "--store", tmp_path / "s.sqlite", code=1)
    assert message in " ".join(output.split())
    assert "Traceback" not in output
    if (tmp_path / "s.sqlite").exists():
        with Store(tmp_path / "s.sqlite") as store:
            assert (store.runs(), store.commands()) == ([], [])


def test_a_missing_or_empty_store_is_named(tmp_path):
    assert "does not exist" in call("study", "status", "--store", tmp_path / "no.sqlite", code=1)
    Store(tmp_path / "empty.sqlite").close()
    assert "has no finished run" in call("study", "report", "--store", tmp_path / "empty.sqlite", code=1)


READERS = ["status", "compare", "report", "export"]


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("version", [0, 1])
def test_the_database_of_another_program_is_left_alone(tmp_path, command, version):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE songs (name TEXT)")
        db.execute(f"PRAGMA user_version={version}")
    db.close()
    before = path.read_bytes()
    assert "other.sqlite is a database of another program" in call("study", command, "--store", path, code=1)
    with pytest.raises(StoreError, match="database of another program"):
        Store(path)
    assert path.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["other.sqlite"]


@pytest.mark.parametrize("command", READERS)
def test_a_store_damaged_behind_its_first_pages_is_one_line(tmp_path, command):
    path = tmp_path / "half.sqlite"
    with Store(path) as store:
        store.add_runs([RunConfig(seed=s) for s in range(300)])
    raw = path.read_bytes()
    page = 4096
    path.write_bytes(raw[: 16 * page] + b"\x7f" * (len(raw) - 16 * page))
    output = call("study", command, "--store", path, code=1)
    assert output.startswith("error: store ")
    assert "malformed" in output


def test_readers_write_nothing_and_read_stores_of_the_first_version(filled):
    with Store(filled) as store:
        store._db.execute("DROP TABLE measures")
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = filled.read_bytes()
    for command in ("status", "compare", "export"):
        call("study", command, "--store", filled)
    assert filled.read_bytes() == before


def test_data_commands(tmp_path):
    assert "missing: train-images-idx3-ubyte" in call("data", "list", "--data-folder", tmp_path)
    assert "fashion-mnist  train-images-idx3-ubyte: missing" in call("data", "check", "--data-folder", tmp_path, code=1)
    assert "name must be one of fashion-mnist, cifar-10" in call("data", "fetch", "mnist", code=1)
    assert "adult has no known hash to check" in call("data", "check", "adult", code=1)


def test_import_makes_no_store_of_what_is_no_export(tmp_path):
    (tmp_path / "g.txt").write_text("garbage")
    assert "g.txt: row 1 must have" in call("study", "import", tmp_path / "g.txt", "--store", tmp_path / "s", code=1)
    assert not (tmp_path / "s").exists()


def test_own_data_gives_the_same_report(tmp_path):
    lines = [f"{i % 5 - i % 2 * 4},{i % 7},{'ab'[i % 2]}" for i in range(80)]
    (tmp_path / "t.csv").write_text("x,z,y\n" + "\n".join(lines))
    store = tmp_path / "s.sqlite"
    own = ["--dataset", tmp_path / "t.csv", "--label", "y", "--store", store]
    message = "batch_size must be at most 58 (the training samples of"
    assert message in call("study", "run", *QUICK, *own, code=1)
    quick = ["32" if a == "512" else a for a in QUICK]
    call("study", "run", *quick, *own)
    assert "What to do: " in call("study", "report", "--format", "markdown", "--store", store)


def test_a_reader_that_has_read_enough_is_no_error(filled):
    words = [sys.executable, "-m", "hypersimplex_study", "study", "report", "--format", "json", "--store", str(filled)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": buffered}
    with subprocess.Popen(words, **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
