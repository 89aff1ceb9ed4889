"""Commands that only look: quick, quiet where asked, and with numbers for programs."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from hypersimplex_study.config import RunConfig
from hypersimplex_study.store import Store
from test_cli import call
from trainings import epoch

HEAVY = ("torch", "scipy", "sklearn", "matplotlib", "pandas", "lightgbm", "jinja2")


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        for loss in ("cross-entropy", "hypersimplex"):
            for seed in (0, 1, 2):
                config = RunConfig(loss=loss, seed=seed, epochs=2)
                store.add_runs([config])
                gain = 0.1 * (loss == "hypersimplex") + 0.01 * seed * seed
                store.record_all(config.key(), [epoch(i, own=0.5 + gain + i / 10) for i in range(2)])
                store.finish(config.key(), "done")
        bad = RunConfig(loss="mse", epochs=2)
        store.add_runs([bad])
        store.finish(bad.key(), "failed", "OSError: no such thing")
    return path


@pytest.mark.parametrize("command", ["study status", "data list", "study --help", "data check"])
def test_looking_imports_no_framework(filled, tmp_path, command):
    words = command.split()
    words += ["--store", str(filled)] if command == "study status" else []
    words += ["--data-folder", str(tmp_path)] if words[0] == "data" else []
    program = (
        "import sys\nfrom hypersimplex_study.cli import app\n"
        "try:\n    app(sys.argv[1:])\n"
        f"finally:\n    print('LOADED', *[m for m in {HEAVY} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize("words", [[], ["study"], ["data"], ["study", "run"], ["data", "list"]], ids=" ".join)
def test_h_is_help(words):
    assert call(*words, "-h") == call(*words, "--help")


def test_status_for_programs(filled):
    found = json.loads(call("study", "status", "--store", filled, "--json"))
    assert (found["runs"], found["trainings"], found["seconds"]) == (7, 7, 0.125 * 12)
    groups = {g["loss"]: g for g in found["groups"]}
    assert groups["hypersimplex"] == {
        "dataset": "digits", "loss": "hypersimplex", "batch_size": 128, "states": {"done": 3},
        "epochs_done": 6, "epochs": 6,
    }  # fmt: skip
    assert groups["mse"]["states"] == {"failed": 1}
    assert found["without_result"] == [
        {"run": "digits · mse · batch 128 · lr 0.001 · seed 0", "state": "failed", "error": "OSError: no such thing"}
    ]


def test_compare_for_programs(filled):
    found = json.loads(call("study", "compare", "--store", filled, "--json"))
    (row,) = [r for r in found["rows"] if r["loss"] == "hypersimplex"]
    assert row["difference"] == pytest.approx(0.1)
    assert row["baseline"] == "cross-entropy"
    assert "hypersimplex" in found["verdict"]
    assert found["caveats"][0].startswith("Not finished: 1 of 7 runs; ")
    by_test = json.loads(call("study", "compare", "--store", filled, "--json", "--paper-rule"))
    assert "verdict" not in by_test
    assert by_test["rows"][0]["mean"] == pytest.approx(by_test["rows"][0]["paper_rule_mean"])


def test_compare_says_how_many_times_the_steps_it_takes(tmp_path):
    """Also where the end point settles nothing: the steps are what a practitioner wants to know."""
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        for seed, bend in enumerate((0.0, 0.03, -0.02)):
            for loss, curve in (("cross-entropy", (0.5, 0.7, 0.9)), ("hypersimplex", (0.5, 0.8 + bend, 0.92 + bend))):
                config = RunConfig(loss=loss, seed=seed, epochs=3)
                store.add_runs([config])
                epochs = [replace(epoch(i, own=v), steps=10 * i + 10) for i, v in enumerate(curve)]
                store.record_all(config.key(), epochs)
                store.finish(config.key(), "done")
    text = " ".join(call("study", "compare", "--store", path).split())
    assert "On digits at batch size 128 hypersimplex reaches 90 % in 0." in text
    assert re.search(r"times the steps of cross-entropy \(95 % interval 0\.\d\d to 0\.\d\d\)\. What to do", text)
    assert "add about" in text
    (row,) = [r for r in json.loads(call("study", "compare", "--store", path, "--json"))["reached"] if r["primary"]][
        -1:
    ]
    assert (row["level"], row["baseline"]) == (0.9, "cross-entropy")


def test_quiet_says_the_one_thing(filled):
    assert call("study", "status", "--store", filled, "--quiet").splitlines() == [
        "7 runs, 7 trainings, 2 s of computing: 6 done, 1 failed"
    ]
    quiet = call("study", "compare", "--store", filled, "--quiet")
    assert "hypersimplex" in quiet
    assert "±" not in quiet


def test_a_quiet_run_prints_nothing(tmp_path):
    quick = ["--epochs", "1", "--width", "8", "--batch-size", "512", "--threads", "1", "--seed", "0", "--loss", "mse"]
    store = tmp_path / "s.sqlite"
    assert call("study", "run", *quick, "--store", store, "--quiet") == ""
    assert call("study", "report", "--store", store, "--quiet", "-o", tmp_path / "r.html") == ""
    file = tmp_path / "e.json"
    file.write_text(call("study", "export", "--store", store))
    assert call("study", "import", file, "--store", tmp_path / "o.sqlite", "--quiet") == ""
