"""Many Python threads call at once: results are those of one thread, and a free-threaded Python keeps its GIL off."""

import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pytest

import hypersimplex as hs

CALLERS, ROUNDS = 8, 20


def work(seed):
    """Small and large slices, along both axes."""
    rng = np.random.default_rng(seed)
    found = []
    for shape, axis in (((7,), -1), ((40, 33), 0), ((3, 70_000), -1), ((600, 90), 0)):
        x = rng.normal(size=shape).astype(np.float32)
        k = shape[axis] / 3
        found += [hs.soft_binary_argmax(x, k, 0.7, axis=axis), hs.threshold(x, k, axis=axis)]
        found.append(hs.binary_argmax(x, int(k), axis=axis))
    return found


@pytest.mark.parametrize("threads", ["1", "2"])
def test_callers_do_not_disturb_each_other(threads, monkeypatch):
    monkeypatch.setenv("HYPERSIMPLEX_NUM_THREADS", threads)
    expected = [work(seed) for seed in range(CALLERS)]
    wrong, together = [], threading.Barrier(CALLERS)

    def call(seed):
        together.wait()
        for _ in range(ROUNDS):
            pairs = zip(work(seed), expected[seed], strict=True)
            wrong.extend((seed, i) for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b))

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_the_module_leaves_the_gil_off():
    code = "import sys, hypersimplex; sys.exit(sys._is_gil_enabled())"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code]).returncode == 0
