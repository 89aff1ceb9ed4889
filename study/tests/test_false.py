"""Nothing false gets in: cut or edited exports, impossible numbers, names that command a terminal."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch

from hypersimplex_study import checkpoint, exchange
from hypersimplex_study.config import RunConfig
from hypersimplex_study.console import visible
from hypersimplex_study.data import load_cached
from hypersimplex_study.engines import Ended, execute
from hypersimplex_study.ray_engine import compute
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime, Training
from test_cli import call
from trainings import NO_TIMES, epoch

ONE = Runtime(threads=1)
WRITERS = {"json": exchange.to_json, "csv": exchange.to_csv}


def fill(store, *configs):
    for i, config in enumerate(configs):
        key = config.training().key()
        store.add_runs([config])
        store.start(key, {"torch": "2"})
        store.record_all(key, [epoch(e, own=0.5 + 0.01 * i + e / 10) for e in range(config.epochs)])
        store.finish(key, "done")


@pytest.fixture
def three(store):
    fill(store, *(RunConfig(loss=name, seed=s, epochs=3) for name in ("cross-entropy", "hypersimplex") for s in (0, 1)))
    return store


@pytest.mark.parametrize("cut", [1, 3, 10])
def test_an_export_cut_at_a_lines_end_is_refused(three, cut):
    lines = exchange.to_csv(three.runs()).splitlines(keepends=True)
    assert len(lines) == 13
    with pytest.raises(exchange.ExportFileError, match=f"must have the 12 rows it was written with, got {12 - cut}"):
        exchange.read("".join(lines[:-cut]))
    rows = json.loads(exchange.to_json(three.runs()))
    with pytest.raises(exchange.ExportFileError, match=f"must have the 12 rows it was written with, got {12 - cut}"):
        exchange.read(json.dumps(rows[:-cut]))


def csv_of(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def edited(store, form, **changes):
    """An export whose second row somebody changed."""
    text = WRITERS[form](store.runs())
    rows = json.loads(text) if form == "json" else list(csv.DictReader(io.StringIO(text)))
    rows[1] |= changes
    return json.dumps(rows) if form == "json" else csv_of(rows)


@pytest.mark.parametrize("form", WRITERS)
def test_an_edited_export_is_refused(three, form):
    with pytest.raises(exchange.ExportFileError, match="has other content than it was written with"):
        exchange.read(edited(three, form, test_accuracy_own=0.62))
    assert len(exchange.read(edited(three, form))) == 12


def earlier(store, form, drop=(), **changes):
    """An export of the first version, which carries neither count nor hash; with a change to its second row."""
    rows = exchange.rows(store.runs())
    rows[1] |= changes
    rows = [{k: v for k, v in r.items() if k not in exchange.WHOLENESS} for i, r in enumerate(rows) if i not in drop]
    return json.dumps(rows) if form == "json" else csv_of([r | {"provenance": "{}", "drop": "[]"} for r in rows])


IMPOSSIBLE = [
    ({"test_accuracy_own": 37.0}, "test_accuracy_own must be between 0 and 1, got 37.0"),
    ({"val_accuracy_argmax": -0.5}, "val_accuracy_argmax must be between 0 and 1, got -0.5"),
    ({"seconds": float("inf")}, "seconds must be finite and not negative, got inf"),
    ({"seconds": -1.0}, "seconds must be finite and not negative, got -1.0"),
    ({"train_loss": float("nan")}, "train_loss must be finite, got nan"),
    ({"epoch": 2**63 - 1}, f"epoch must be between 0 and 2, got {2**63 - 1}"),
    ({"epoch": 3}, "epoch must be between 0 and 2, got 3"),
    ({"epoch": -1}, "epoch must be between 0 and 2, got -1"),
    ({"epoch": 0}, "epoch 0 is there twice"),
    ({"state": "running"}, "state must be the same in all rows"),
    ({"lr": 0.5}, "lr must be the same in all rows"),
]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize(("changes", "message"), IMPOSSIBLE, ids=lambda v: "" if isinstance(v, str) else next(iter(v)))
def test_impossible_numbers_are_refused(three, form, changes, message):
    with pytest.raises(exchange.ExportFileError, match=message):
        exchange.read(earlier(three, form, **changes))


def test_a_finished_run_must_be_whole(three):
    assert len(exchange.read(earlier(three, "csv"))) == 12
    for gone in (0, 1, 11):
        with pytest.raises(exchange.ExportFileError, match="is done, so it must have all 3 epochs, got 2"):
            exchange.read(earlier(three, "csv", drop=(gone,)))


def test_a_run_must_have_the_key_of_its_configuration(three):
    text = earlier(three, "csv").replace(three.runs()[0].key, "0123456789abcdef")
    with pytest.raises(exchange.ExportFileError, match="run 0123456789abcdef: its settings are those of run"):
        exchange.read(text)


def test_a_refused_import_makes_no_store(three, tmp_path):
    (tmp_path / "cut.csv").write_text("".join(exchange.to_csv(three.runs()).splitlines(keepends=True)[:-2]))
    output = call("study", "import", tmp_path / "cut.csv", "--store", tmp_path / "new.sqlite", code=1)
    assert "cut.csv must have the 12 rows it was written with, got 10" in output
    assert not (tmp_path / "new.sqlite").exists()


@pytest.mark.parametrize(
    "name", ["tabular/runs.csv.gz", "laptop/runs.csv.gz", "laptop/paper-runs.csv", "laptop/paper-8192-runs.csv"]
)
def test_what_is_published_is_whole(name, request):
    path = request.config.rootpath / "docs" / "results" / name
    if not path.exists():
        pytest.skip(f"docs/results/{name} is not published")
    assert exchange.read_file(path)


ESCAPES = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202ered"
NAMES = ["[/red]x", "[bold]y[/]", ":boom: $x_", f"{ESCAPES}.csv"]


@pytest.fixture
def nasty(tmp_path):
    """A store as no program of ours leaves it."""
    path = tmp_path / "nasty.sqlite"
    with Store(path) as store:
        for name in NAMES:
            fill(
                store,
                *(RunConfig(dataset=name, loss=x, seed=s, epochs=2) for x in ("mse", "hypersimplex") for s in (0, 1)),
            )
        empty = RunConfig(loss="mse", epochs=2)
        store.add_runs([empty])
        store.finish(empty.key(), "done")
        endless = RunConfig(dataset=NAMES[0], loss="hinge", epochs=2)
        fill(store, endless)
        store.record(endless.key(), replace(epoch(1), seconds=float("inf")))
        with store._transaction() as db:
            db.execute("UPDATE epochs SET epoch=? WHERE training=? AND epoch=1", (2**63 - 1, endless.key()))
        failed = RunConfig(dataset=NAMES[3], loss="hinge")
        store.add_runs([failed])
        store.finish(failed.key(), "failed", f"{ESCAPES}[/red]")
        store.event(None, f"{ESCAPES}[/red]")
    return path


def in_a_terminal(*words):
    """Run the command with a terminal as its output; return what the terminal was sent."""
    main, side = pty.openpty()
    command = [sys.executable, "-m", "hypersimplex_study", *map(str, words)]
    environment = os.environ | {"COLUMNS": "100", "TERM": "xterm", "MPLBACKEND": "Agg"}
    with subprocess.Popen(command, stdout=side, stderr=side, env=environment, close_fds=True) as process:
        os.close(side)
        sent = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:
                break
            if not piece:
                break
            sent += piece
    os.close(main)
    return process.returncode, sent.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "words", ["status", "status --json", "compare", "report --format markdown", "report --format csv", "export"]
)
def test_a_nasty_store_breaks_nothing_and_sends_nothing_raw(nasty, words):
    code, sent = in_a_terminal("study", *words.split(), "--store", nasty)
    assert code == 0, sent
    assert "Traceback" not in sent
    for part in ("\x1b]0", "\x07", "\x9b", "\u202e"):
        assert part not in sent
    assert "[/red]x" in sent
    assert "owned" in sent


def test_a_nasty_store_makes_a_page(nasty, tmp_path):
    call("study", "report", "--store", nasty, "-o", tmp_path / "r.html", "--figures", tmp_path / "figures")
    page = (tmp_path / "r.html").read_text()
    assert "[/red]x" in page
    assert "\x1b" not in page


def test_an_error_is_no_markup(tmp_path):
    output = call("study", "status", "--store", tmp_path / f"[/red]{ESCAPES}", code=1)
    assert "[/red]" in output.replace("\n", "")
    assert "\x07" not in output


def test_visible_keeps_what_can_be_read():
    assert visible("a\tb\nç · 漢字 ±") == "a\tb\nç · 漢字 ±"
    assert visible("\x1b[1m\udcff") == r"\x1b[1m\udcff"


def test_done_without_epochs_is_not_done(store, short):
    store.add_runs([short])
    store.finish(short.key(), "done")
    (run,) = store.runs()
    assert (run.state, run.error) == ("failed", "recorded as done, but without an epoch")
    assert store.state(short.key()) == "failed"
    assert execute(store, short, ONE, lambda *_: None) == "done"
    assert len(store.epochs(short.key())) == short.epochs


def snapshot_after(config, epochs):
    training = Training(config, load_cached("digits", None, None), ONE)
    history = [training.run_epoch() for _ in range(epochs)]
    state = {
        "key": config.key(), "model": training.model.state_dict(), "loss": training.loss.state_dict(),
        "optimizer": training.optimizer.state_dict(), "generator": training.generator.get_state(),
        "torch_random": torch.get_rng_state(), "cuda_random": None, "history": [asdict(e) for e in history],
    }  # fmt: skip
    return training, state


def without(name):
    return lambda state: state.pop(name)


def other_optimizer(state):
    for moments in state["optimizer"]["state"].values():
        moments["exp_avg"] = torch.zeros(3)


CHANGES = {
    "no optimizer": without("optimizer"),
    "no key": without("key"),
    "another network": lambda state: state["model"].pop("1.weight"),
    "another optimizer": other_optimizer,
    "another history": lambda state: state["history"][0].update(colour=3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_whole_checkpoint_of_another_version_restarts_its_run(store, short, tmp_path, change):
    with Store(tmp_path / "alone.sqlite") as alone:
        alone.add_runs([short])
        execute(alone, short, ONE, lambda *_: None)
        expected = [replace(e, **NO_TIMES) for e in alone.epochs(short.key())]
    store.add_runs([short])
    _, state = snapshot_after(short, 2)
    CHANGES[change](state)
    checkpoint.write(store.work_folder, short.key(), checkpoint.pack(state))
    assert execute(store, short, ONE, lambda *_: None) == "done"
    assert [replace(e, **NO_TIMES) for e in store.epochs(short.key())] == expected
    assert any("the run starts again" in what for _, _, what in store.events())
    # what a worker of a Ray cluster tells its driver
    *told, end = compute(short, ONE, checkpoint.pack(state))
    assert end == Ended("done", None)
    assert [replace(m.epoch, **NO_TIMES) for m in told if hasattr(m, "epoch")] == expected
    (begun,) = [m for m in told if getattr(m, "note", None) and "the run starts again" in m.note]
    assert begun.history == []


def test_a_file_that_names_a_function_says_that_it_runs_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text('dataset = "no_such_module:make"\n')
    output = call("study", "run", "--config", "s.toml", "--store", tmp_path / "s.sqlite", code=1)
    said = f"note: s.toml names the data set no_such_module:make: this runs code from {tmp_path}"
    assert said in " ".join(output.split())
    assert not (tmp_path / "s.sqlite").exists()
