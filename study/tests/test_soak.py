"""Random kills, as `kill -9` does them, at random moments; what is recorded in the end is as if nothing had happened.

`make soak KILLS=50` runs many of them, over networks, boosted trees, two processes and Ray where they are installed.
"""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest

from hypersimplex_study.engines import InProcess
from hypersimplex_study.schema import StoreError
from hypersimplex_study.store import Store
from hypersimplex_study.sweep import Study, run_study, trainings
from hypersimplex_study.train import Runtime

KILLS = int(os.environ.get("HYPERSIMPLEX_KILLS", "0"))
SEED = int(os.environ.get("HYPERSIMPLEX_SOAK_SEED", "0"))
PATIENCE = 120.0

NETWORKS = Study(loss=("mse", "hypersimplex"), seed=(0, 1), epochs=12, width=16, batch_size=(256,))
KINDS = {
    "networks": (NETWORKS, []),
    "two processes": (replace(NETWORKS, seed=(0, 1, 2)), ["--processes", "2", "--retries", "1000"]),
    "trees": (Study(loss=("binary", "hypersimplex"), network="lightgbm", width=7, seed=(0, 1), epochs=8), []),
    "ray": (NETWORKS, ["--engine", "ray", "--retries", "1000"]),
}
NEEDS = {"trees": "lightgbm", "ray": "ray"}


def table(path):
    """Two classes that trees can be trained on, and that take them a while."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 12))
    y = (x[:, 0] * x[:, 1] + rng.normal(size=4000) > 0).astype(int)
    lines = [",".join([*(f"{v:.4f}" for v in row), str(label)]) for row, label in zip(x, y, strict=True)]
    path.write_text(",".join([*(f"x{i}" for i in range(12)), "y"]) + "\n" + "\n".join(lines))


def command(study, path, extra):
    words = [
        sys.executable,
        "-m",
        "hypersimplex_study",
        "study",
        "run",
        "--quiet",
        "--threads",
        "1",
        "--store",
        str(path),
    ]
    for option, values in (("dataset", study.dataset), ("loss", study.loss), ("seed", study.seed)):
        words += [word for value in values for word in (f"--{option}", str(value))]
    words += ["--epochs", str(study.epochs), "--width", str(study.width), "--network", study.network]
    words += ["--label", study.label] if study.label else ["--batch-size", str(study.batch_size[0])]
    return [*words, *extra]


def numbers(store, study):
    """What a study records, but for the seconds it took."""
    timed = {"seconds": 0.0, "recompute_seconds": None, "evaluate_seconds": None}
    found = {}
    for config in trainings(study.first()):
        found[config.key()] = store.state(config.key()), [replace(e, **timed) for e in store.epochs(config.key())]
    return found


def recorded(path):
    try:
        with Store(path, read_only=True) as store:
            return sum(store.epoch_counts().values())
    except StoreError:  # not there yet, or without tables yet
        return 0


def children(pid):
    """The processes below one, from the system's own list."""
    below = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    below.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(entry))
            except OSError:
                continue
    found, left = [], [pid]
    while left:
        left += (more := below.get(left.pop(), []))
        found += more
    return found


def end(process):
    """End a command and all it started."""
    for pid in [*children(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def live_and_die(words, path, rng):
    """Start the command, let it record something and go on for a moment, and kill it; return whether it was killed."""
    before = recorded(path)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    began = time.monotonic()
    # One in four dies before it has recorded anything.
    early = rng.random() < 0.25
    try:
        while process.poll() is None and time.monotonic() - began < PATIENCE:
            if (early and path.exists()) or recorded(path) > before:
                break
            time.sleep(0.05)
        time.sleep(rng.random() * 0.5)
        killed = process.poll() is None
        if not killed:
            assert process.returncode == 0, process.communicate()[0]
    finally:
        end(process)
        process.stdout.close()
    return killed


def soak(kind, kills, folder, seed):
    """Kill a study of one kind this many times; every repetition must end in the numbers of an undisturbed one."""
    study, extra = KINDS[kind]
    if study.network != "mlp":
        table(folder / "t.csv")
        study = replace(study, dataset=(str(folder / "t.csv"),), label="y")
    with Store(folder / "undisturbed.sqlite") as store:
        run_study(study, store, InProcess(), Runtime(threads=1), lambda *_: None, lambda *_: None)
        expected = numbers(store, study)
    assert {state for state, _ in expected.values()} == {"done"}
    rng, left, repetition = random.Random(seed), kills, 0
    while left:
        path = folder / f"{repetition}.sqlite"
        words = command(study, path, extra)
        while left and live_and_die(words, path, rng):
            left -= 1
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with Store(path) as store:
            assert numbers(store, study) == expected
            assert list(store.work_folder.glob("*.checkpoint*")) == []
        repetition += 1
    print(f"{kind}: {kills} kills, {repetition} studies, {len(expected)} trainings each, all numbers equal")


def missing(kind):
    return kind in NEEDS and find_spec(NEEDS[kind]) is None


@pytest.mark.slow
@pytest.mark.skipif(not KILLS, reason="`make soak` sets the number of kills")
@pytest.mark.parametrize("kind", KINDS)
def test_many_kills(kind, tmp_path):
    if missing(kind):
        pytest.skip(f"{NEEDS[kind]} is not installed here")
    there = [k for k in KINDS if not missing(k)]
    share = KILLS // len(there) + (there.index(kind) < KILLS % len(there))
    soak(kind, share, tmp_path, SEED)


def test_a_few_kills(tmp_path):
    soak("networks", 2, tmp_path, SEED)
