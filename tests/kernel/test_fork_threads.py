"""Threads and fork: the GIL is released, calls at the same time do not disturb each other, a fork still works."""

import multiprocessing
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hypersimplex as hs
from hypersimplex import _kernel
from tests.processes import in_a_new_process

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def test_calls_at_the_same_time_do_not_disturb_each_other(monkeypatch):
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", "2")
    shapes = [(3, 70_001), (200_003, 3), (5, 7), (8000, 40), (2, 300_000), (33, 33)] * 4
    problems = [np.random.default_rng(i).normal(size=shape).astype("f4") for i, shape in enumerate(shapes)]

    def solve(x):
        return hs.soft_binary_argmax(x, 1.5, 0.5), hs.threshold(x, 2, axis=0), hs.binary_argmax(x, 1, axis=0)

    alone = [solve(x) for x in problems]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(solve, problems))
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_the_gil_is_released():
    """While one thread is in the kernel another one runs. With this switch interval nobody is made to let go of the
    GIL: if the kernel kept it, the first step below would come when all calls are over. One call may be too short for
    a busy machine to let the other thread run."""
    x = np.random.default_rng(0).standard_normal(4_000_000, dtype=np.float32)
    y = np.empty_like(x)
    ran_meanwhile, calls = threading.Event(), []

    def work():
        while not ran_meanwhile.is_set() and len(calls) < 1000:
            _kernel.project(x, 400_000.0, 1.0, y=y)
            calls.append(1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        ran_meanwhile.set()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(calls) < 1000
    assert y.sum(dtype=np.float64) == pytest.approx(400_000)


@needs_fork
def test_numpy_works_after_a_fork():
    """Threads do not survive a fork; a pool kept from before it would wait for them forever."""
    out = in_a_new_process(
        """
        import os, numpy as np, hypersimplex as hs
        x = np.random.default_rng(0).standard_normal((4, 300_000), dtype=np.float32)
        before = hs.soft_binary_argmax(x, 1000)
        for generation in range(2):
            child = os.fork()
            if child:
                _, status = os.waitpid(child, 0)
                os._exit(os.waitstatus_to_exitcode(status))
            assert np.array_equal(hs.soft_binary_argmax(x, 1000), before)
            os.environ["HYPERSIMPLEX_NUM_THREADS"] = "3"
            np.testing.assert_allclose(hs.soft_binary_argmax(x, 1000), before, rtol=0, atol=1e-6)
        print("done", flush=True)
        """,
        HYPERSIMPLEX_NUM_THREADS="2",
    )
    assert out == "done\n"


@needs_fork
def test_torch_works_after_a_fork():
    out = in_a_new_process(
        """
        import os, torch, hypersimplex.torch as hst
        torch.set_num_threads(2)
        x = torch.randn(4, 300_000, requires_grad=True)
        y = hst.soft_binary_argmax(x, 1000)
        y.backward(x.detach())
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status))
        again = x.detach().requires_grad_()
        z = hst.soft_binary_argmax(again, 1000)
        z.backward(x.detach())
        assert (z.detach().numpy() == y.detach().numpy()).all()
        assert abs(again.grad.numpy() - x.grad.numpy()).max() < 1e-5
        print("done", flush=True)
        os._exit(0)
        """
    )
    assert out == "done\n"


def row_sums(seed):
    x = np.random.default_rng(seed).standard_normal((2, 200_000), dtype=np.float32)
    return hs.soft_binary_argmax(x, 500.0).sum(axis=-1, dtype=np.float64)


@needs_fork
# Forking a process that has threads is what this test is about.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_multiprocessing_pool_of_forks(monkeypatch):
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", "2")
    row_sums(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for sums in pool.map_async(row_sums, range(6)).get(timeout=300):
            np.testing.assert_allclose(sums, 500, rtol=1e-6)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="this system does not list a process's threads")
def test_no_more_threads_than_asked_for():
    out = in_a_new_process(
        """
        import os, torch, hypersimplex.torch as ht
        torch.set_num_threads(3)
        x = torch.randn(64, 20_000)
        x.softmax(-1)
        before = len(os.listdir("/proc/self/task"))
        for _ in range(20):
            y = ht.soft_binary_argmax(x, 100)
        assert abs(y.double().sum() - 6400) < 1e-2
        print(len(os.listdir("/proc/self/task")) - before)
        """
    )
    assert out.split() == ["2"]


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_interpreter_may_exit_while_a_daemon_thread_is_inside(at_once):
    """The thread finds no interpreter to come back to: it has to stay where it is, not to end the process."""
    out = in_a_new_process(
        f"""
        import threading, time, numpy as np, hypersimplex as hs
        x = np.random.default_rng(0).standard_normal(2_000_000, dtype=np.float32)
        begun = threading.Semaphore(0)

        def work():
            begun.release()
            while True:
                hs.soft_binary_argmax(x, 1000)

        for _ in range({at_once}):
            threading.Thread(target=work, daemon=True).start()
        for _ in range({at_once}):
            begun.acquire()
        time.sleep(0.2)
        print("done", flush=True)
        """,
        HYPERSIMPLEX_NUM_THREADS="2",
    )
    assert out == "done\n"
