"""Whoever is given threads uses them: the other threads of the process do a part of the work."""

import os
import time
from pathlib import Path

import pytest
import torch

from hypersimplex.torch import _batch, binary_argmax
from hypersimplex.torch.backends import kernel
from tests.processes import in_a_new_process

TASKS = Path("/proc/self/task")
pytestmark = pytest.mark.skipif(
    not TASKS.exists() or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two processors",
)


def nanoseconds_of_others() -> int:
    own = str(os.getpid())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in TASKS.iterdir() if task.name != own)


def others_help(call) -> bool:
    """On a busy machine the others may come too late for a while: then once more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        before, begun = nanoseconds_of_others(), time.thread_time_ns()
        for _ in range(8):
            call()
        theirs, own = nanoseconds_of_others() - before, time.thread_time_ns() - begun
        if theirs > 0.1 * own:
            return True
    return False


def loss(samples: int, classes: int):
    logits, labels = torch.randn(samples, classes), torch.randint(classes, (samples,))
    settings = _batch.Settings(None, -100, "mean", None, None, 1.0)
    return lambda: kernel.loss(_batch.fit(logits, labels), settings, True)


def pullback(rows: int, n: int):
    x, v = torch.randn(rows, n), torch.randn(rows, n)
    y, _ = kernel.project(x, 0.1 * n, 1.0, 1, want_mu=False)
    return lambda: kernel.pullback(y, v, 1.0, 1, (True, False, False))


def part_of_a_rank(samples: int, classes: int):
    batch = _batch.fit(torch.randn(samples, classes), torch.randint(classes, (samples,)))
    ones, zeros = torch.ones(classes, dtype=torch.float64), torch.zeros(classes, dtype=torch.float64)
    return lambda: kernel.sums(batch, -100, ones, zeros, zeros)


def binary(rows: int, n: int):
    x = torch.randn(rows, n)
    return lambda: binary_argmax(x, n // 10)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (pullback, (1, 2 * 10**6)),
        (loss, (2 * 10**5, 2)),
        (part_of_a_rank, (10**5, 64)),
        (part_of_a_rank, (10**5, 10)),
        (binary, (64, 20000)),
    ],
)
def test_the_other_threads_work(make, shape):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert others_help(make(*shape))
    finally:
        torch.set_num_threads(before)


def test_a_worker_leaves_the_callers_processor():
    """A thread begins where its maker may run; the caller sees it there and sends it elsewhere."""
    out = in_a_new_process(
        """
        import os, numpy as np, hypersimplex as hs

        def others():
            return {int(task) for task in os.listdir("/proc/self/task")} - {os.getpid()}

        x = np.random.default_rng(0).standard_normal((8, 100_000), dtype=np.float32)
        here, there, *_ = os.sched_getaffinity(0)
        known = others()
        os.sched_setaffinity(0, {here})
        hs.soft_binary_argmax(x, 10)
        (worker,) = others() - known
        assert os.sched_getaffinity(worker) == {here}
        for _ in range(1000):
            os.sched_setaffinity(0, {here})
            os.sched_setaffinity(0, {here, there})
            hs.soft_binary_argmax(x, 10)
            if os.sched_getaffinity(worker) == {there}:
                break
        print(os.sched_getaffinity(worker) == {there})
        """,
        HYPERSIMPLEX_NUM_THREADS="2",
    )
    assert out == "True\n"
