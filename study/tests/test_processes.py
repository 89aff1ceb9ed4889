"""Several processes on one store: the numbers stay the same, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from hypersimplex_study import engines
from hypersimplex_study.config import RunConfig
from hypersimplex_study.engines import Processes
from hypersimplex_study.store import Store
from trainings import ONE, numbers, run


def test_processes_give_the_numbers_of_one_process(tmp_path, short, expected):
    configs = [replace(short, seed=s) for s in range(3)]
    told = []
    with Store(tmp_path / "s.sqlite") as store:
        store.add_runs(configs)
        Processes(2).run(store, configs, ONE, lambda c, e: told.append((c.seed, e.epoch)))
        assert [r.state for r in store.runs()] == ["done"] * 3
        assert numbers(store, short) == expected
        assert [r.attempts for r in store.runs()] == [1, 1, 1]
    assert sorted(told) == [(s, e) for s in range(3) for e in range(4)]


HELD = """
    import pathlib, time
    import numpy as np
    from torch import nn

    class Held(nn.Linear):
        steps = 0
        def forward(self, x):
            Held.steps += self.training
            while Held.steps == 6 and not pathlib.Path(__file__).with_name("go").exists():
                time.sleep(0.01)
            return super().forward(x)

    def make():
        x = np.random.default_rng(0).normal(size=(100, 3))
        y = (x[:, 0] > 0).astype(int)
        return (x[:80], y[:80], x[80:], y[80:]), lambda: Held(3, 2)
"""


def test_a_killed_worker_is_replaced(tmp_path, monkeypatch, short):
    """The network stops in its second epoch until the worker was killed: it cannot have come to its end before."""
    (tmp_path / "held.py").write_text(textwrap.dedent(HELD))
    monkeypatch.syspath_prepend(str(tmp_path))
    config = replace(short, dataset="held:make", batch_size=16, validation=0.1).training()
    killed, others = [], set(engines.multiprocessing.active_children())  # of tests that ran before in this process

    def kill_once(config, epoch):
        if not killed:
            (worker,) = set(engines.multiprocessing.active_children()) - others
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(worker.pid)
            (tmp_path / "go").touch()

    with Store(tmp_path / "s.sqlite") as store:
        store.add_runs([config])
        Processes(1).run(store, [config], ONE, kill_once)
        assert store.state(config.key()) == "done"
        found = numbers(store, config)
        assert any(f"worker process {killed[0]} ended with code -9" in what for _, _, what in store.events())
    with Store(tmp_path / "undisturbed.sqlite") as store:
        run(store, config)
        assert found == numbers(store, config)
    sys.modules.pop("held")


@pytest.mark.slow
def test_two_commands_on_one_store_share_the_work(tmp_path):
    command = [sys.executable, "-m", "hypersimplex_study", "study", "run", "--store", str(tmp_path / "s.sqlite")]
    command += ["--epochs", "3", "--width", "16", "--loss", "mse", "--loss", "hypersimplex", "--threads", "1"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    outputs = [p.communicate()[0] for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    with Store(tmp_path / "s.sqlite") as store:
        runs = store.runs()
        assert len(runs) == 10
        assert {(r.state, r.attempts, len(r.epochs)) for r in runs} == {("done", 1, 3)}


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True], ids=["ctrl-c", "sigterm-in-the-background"])
def test_ctrl_c_or_sigterm_says_how_to_go_on(tmp_path, background):
    command = [sys.executable, "-m", "hypersimplex_study", "study", "run", "--store", str(tmp_path / "s.sqlite")]
    command += ["--epochs", "100000", "--loss", "mse", "--seed", "0", "--threads", "1"]
    # What runs in the background of a script ignores Ctrl-C, and so would its children.
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    started = ["sh", "-c", '"$@" & echo $!; wait $!', "sh"] if background else [sys.executable, "-c", heed]
    process = subprocess.Popen([*started, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline()) if background else process.pid
    config = RunConfig(loss="mse", epochs=100000)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if (tmp_path / "s.sqlite").exists():
            with Store(tmp_path / "s.sqlite") as store:
                if store.epochs(config.key()):
                    break
    os.kill(pid, signal.SIGTERM if background else signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted; run the same command again to continue" in errors


def test_a_killed_command_leaves_no_worker_behind(tmp_path):
    program = """
        import os, signal, sys, multiprocessing
        from hypersimplex_study.config import RunConfig
        from hypersimplex_study.engines import Processes
        from hypersimplex_study.store import Store
        from hypersimplex_study.train import Runtime
        if __name__ == "__main__":
            config = RunConfig(loss="hypersimplex", epochs=100_000, batch_size=256, width=16)
            store = Store(sys.argv[1])
            store.add_runs([config])
            def die(*_):
                print(multiprocessing.active_children()[0].pid, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            Processes(1).run(store, [config.training()], Runtime(threads=1), die)
    """
    script = tmp_path / "study.py"
    script.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, script, tmp_path / "s.sqlite"], stdout=subprocess.PIPE, text=True, timeout=120
    )
    worker = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail(f"worker {worker} goes on without its parent")
