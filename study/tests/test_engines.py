"""Engines and faults: killed processes, damaged checkpoints, full disks; the numbers stay the same."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from hypersimplex_study import checkpoint, engines
from hypersimplex_study.engines import InProcess, execute
from hypersimplex_study.store import Store
from hypersimplex_study.train import Training
from trainings import ONE, numbers, quiet, run

PROGRAM = """
    import os, signal, sys
    import hypersimplex_study.checkpoint as checkpoint
    import hypersimplex_study.engines as engines
    from hypersimplex_study.config import RunConfig
    from hypersimplex_study.store import Store
    from hypersimplex_study.train import Runtime
    config = RunConfig(loss="hypersimplex", epochs=4, batch_size=256, width=16)
    store = Store(sys.argv[1])
    def die():
        os.kill(os.getpid(), signal.SIGKILL)
    {trap}
    store.add_runs([config])
    engines.execute(store, config, Runtime(threads=1), on_epoch)
"""
# Each trap kills the process, as kill -9 does, at the worst moment of one kind of work.
TRAPS = {
    "after an epoch": """
    def on_epoch(config, epoch):
        if epoch.epoch == 1: die()
    """,
    "in the middle of an epoch": """
    from hypersimplex_study.train import Training
    step, steps = Training.step, []
    def counted(self, rows):
        steps.append(1)
        if len(steps) == 9: die()
        return step(self, rows)
    Training.step = counted
    on_epoch = lambda *_: None
    """,
    "while a checkpoint is being written": """
    def write(folder, key, raw, write=checkpoint.write):
        if (folder / f"{key}.checkpoint").exists():
            with open(folder / f"{key}.checkpoint.new", "wb") as file:
                file.write(raw[: len(raw) // 2])
                file.flush()
                die()
        write(folder, key, raw)
    checkpoint.write = write
    on_epoch = lambda *_: None
    """,
    "between a checkpoint and the store": """
    record = Store.record
    def dying(self, key, epoch):
        if epoch.epoch == 2: die()
        record(self, key, epoch)
    Store.record = dying
    on_epoch = lambda *_: None
    """,
    "in the middle of a transaction": """
    def dying(self, key, epoch):
        with self._transaction() as db:
            db.execute("INSERT INTO epochs (training, epoch) VALUES (?, ?)", (key, epoch.epoch))
            if epoch.epoch == 1: die()
            db.execute("DELETE FROM epochs WHERE epoch=?", (epoch.epoch,))
        self.record_all(key, [epoch])
    Store.record = dying
    on_epoch = lambda *_: None
    """,
}


@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.replace(" ", "-"))
def test_kill_9_loses_at_most_the_current_epoch(tmp_path, short, expected, trap):
    path = tmp_path / "s.sqlite"
    program = textwrap.dedent(PROGRAM).format(trap=textwrap.dedent(TRAPS[trap]))
    killed = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with Store(path) as store:
        assert store.state(short.key()) == "running"
        before = numbers(store, short)
        assert before == expected[: len(before)]
        resumed = []
        execute(store, short, ONE, lambda _, epoch: resumed.append(epoch.epoch))
        assert numbers(store, short) == expected
        assert store.state(short.key()) == "done"
        # It went on from the last whole epoch, not from the beginning.
        assert 0 < resumed[0] <= len(before) + 1
        assert any("resumed from its checkpoint" in what for _, _, what in store.events())
        assert list(store.work_folder.glob("*.checkpoint*")) == []


def test_running_again_does_nothing(store, short):
    run(store, short)
    told = []
    InProcess().run(store, [short.training()], ONE, lambda *a: told.append(a))
    assert told == []
    assert store.runs()[0].attempts == 1


def test_a_second_decision_costs_no_training(store, short):
    run(store, short)
    store.add_runs([replace(short, loss="hypersimplex-argmax")])
    assert [r.state for r in store.runs()] == ["done", "done"]


def partly(store, config, epochs=2):
    """Leave a training as a killed process does."""
    store.add_runs([config])
    training = Training(config, engines.load_cached(config.dataset, None, None), ONE)
    for _ in range(epochs):
        store.record(config.key(), training.run_epoch())
    checkpoint.write(store.work_folder, config.key(), training.snapshot())


def test_a_corrupt_checkpoint_is_reported_and_the_run_starts_again(store, short, expected):
    partly(store, short)
    path = checkpoint.path(store.work_folder, short.key())
    path.write_bytes(path.read_bytes()[:-100])
    execute(store, short, ONE, quiet)
    assert numbers(store, short) == expected
    assert any("is damaged" in what and "starts again" in what for _, _, what in store.events())


def test_a_full_disk_costs_the_checkpoint_not_the_run(store, short, expected):
    """A limit on the size of files makes the real write fail, as a full disk does."""
    store.add_runs([short])
    size = os.path.getsize(store.path) + 1_000_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    training = Training(short, engines.load_cached(short.dataset, None, None), ONE)
    training.run_epoch()
    small = len(training.snapshot()) // 2
    assert small < size
    # SQLite must still be able to write: only checkpoints are made too large.
    pack = checkpoint.pack
    checkpoint.pack = lambda state: pack(state) + bytes(size)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        execute(store, short, ONE, quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        checkpoint.pack = pack
    assert numbers(store, short) == expected
    assert store.state(short.key()) == "done"
    notes = [what for _, _, what in store.events()]
    assert len(notes) == 3
    assert all(what.startswith("checkpoint not written (") for what in notes)
    assert list(store.work_folder.glob("*.checkpoint*")) == []


def test_a_diverged_run_is_recorded_and_not_repeated(store, short):
    bad = replace(short, loss="cross-entropy", optimizer="sgd", lr=1e30)
    run(store, bad)
    (found,) = store.runs()
    assert found.state == "diverged"
    assert "the training loss of epoch 0 is" in found.error
    run(store, bad)
    assert store.runs()[0].attempts == 1


def test_a_failed_run_is_recorded_and_tried_again_and_the_others_go_on(store, short):
    bad = replace(short, dataset="nowhere.csv", label="y")
    run(store, bad, short)
    states = {r.config.dataset: r.state for r in store.runs()}
    assert states == {"nowhere.csv": "failed", "digits": "done"}
    assert "DataError: nowhere.csv does not exist" in store.runs()[0].error


def test_other_data_under_the_same_name_is_refused(store, short, tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"{i},{i % 7},{'ab'[i % 2]}" for i in range(60)]
    path.write_text("x,z,y\n" + "\n".join(lines))
    config = replace(short, dataset=str(path), label="y")
    run(store, config)
    path.write_text("x,z,y\n" + "\n".join(reversed(lines)))
    engines.load_cached.cache_clear()
    run(store, replace(config, seed=1))
    assert "has other content" in store.runs()[1].error
