"""The kernel at its own boundaries, on every instruction set that the processor runs: see sweep.py.

The default suite takes one problem in forty, `make test-slow` all, and `make fuzz` draws others for as long as asked.
"""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from hypersimplex import _kernel, reference, soft_binary_argmax
from tests.kernel import checks, exact, shapes

VARIANTS = ("baseline", "avx2", "avx512")


def sweep(variant, *arguments):
    environment = {**os.environ, "HYPERSIMPLEX_SIMD": variant}
    probe = [sys.executable, "-c", "import hypersimplex"]
    if subprocess.run(probe, env=environment, capture_output=True, timeout=120).returncode:
        pytest.skip(f"this processor does not run {variant}")
    command = [sys.executable, "-m", "tests.kernel.sweep", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    last = (done.stdout.splitlines() or [""])[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert last.endswith(f" problems, 0 failed: {variant}"), last
    assert int(last.split()[0]) > 80


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sample_of_the_boundaries(variant):
    sweep(variant, "--every", "40")


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_boundaries(variant):
    """One in three where the instruction set is not this processor's best."""
    sweep(variant, "--every", "1" if variant == _kernel.variant() else "3")


def test_a_problem_is_read_as_it_is_printed():
    for problem in list(shapes.boundary_problems())[::500]:
        assert shapes.parse(str(problem)) == problem


@pytest.mark.parametrize("seed", range(12))
def test_the_yardstick_agrees_with_the_reference(seed):
    rng = np.random.default_rng(seed)
    for n in (1, 2, 3, 7, 30):
        x = rng.normal(size=(8, n)) * 10 ** rng.uniform(-2, 2)
        x = np.round(x) if seed % 2 else x
        if seed % 3 == 0:
            x[rng.random(x.shape) < 0.3] = -np.inf
            x[rng.random(x.shape) < 0.1] = np.inf
        sure, usable = (x == np.inf).sum(1), (x > -np.inf).sum(1)
        tau = 10 ** rng.uniform(-2, 1, size=8)
        for k in (rng.uniform(sure, usable), np.round(rng.uniform(sure, usable)), sure + 0.0, usable + 0.0):
            y, mu = exact.project(x, k, tau)
            np.testing.assert_allclose(y, reference.soft_binary_argmax(x, k, tau), rtol=0, atol=1e-12)
            np.testing.assert_allclose(mu, reference.threshold(x, k, tau), rtol=1e-12, atol=1e-12)
            v = rng.normal(size=x.shape)
            for got, right in zip(exact.pull_back(y, v, tau), reference.vjp(y, v, tau), strict=True):
                np.testing.assert_allclose(got, right, rtol=0, atol=1e-12 / tau.min())
            np.testing.assert_array_equal(exact.largest(x, np.floor(k)), reference.binary_argmax(x, np.floor(k)))


@pytest.mark.parametrize(
    "text",
    [
        # the bracket of a row side by side kept what passes for other rows had put there
        "n=65 slices=127 layout=strided dtype=f4 values=masked apart=True seed=1702812906",
    ],
)
def test_problems_that_failed_once(text):
    checks.check(shapes.parse(text))


@pytest.mark.parametrize("n", [2, 7, 8, 9, 15, 16, 17, 32, 33, 63, 64, 65, 96, 97, 128])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_temperatures(n, dtype):
    """Down to a tau that is less than the spacing of numbers at x; and no row depends on its neighbors."""
    rng = np.random.default_rng(n)
    for offset, tau in itertools.product((0, 1e6), (1, 0.1, 1e-2, 1e-3, 1e-5, 1e-8)):
        x = (rng.standard_normal((33, n)) + offset).astype(dtype)
        x[1::4, : n // 3] = -np.inf
        x[2::4] = rng.standard_cauchy(n) + offset
        for k in (1.0, n / 10, n / 2):
            y = soft_binary_argmax(x, k, tau)
            np.testing.assert_allclose(y, reference.soft_binary_argmax(x, k, tau), rtol=0, atol=1e-6)
            alone = np.stack([soft_binary_argmax(x[i : i + 1], k, tau)[0] for i in range(6)])
            np.testing.assert_array_equal(y[:6], alone)


@pytest.mark.parametrize("n", [96, 97, 431, 3000])
def test_a_budget_next_to_nothing_among_ties(n):
    """A search can come near the common largest entry only; where it takes long, its own rounding must not end it."""
    x = np.random.default_rng(0).integers(-2, 3, size=(3, n)).astype(np.float32)
    for k, tau in itertools.product((5e-324, 1e-30, 1e-12), (1.0, 29.42727176209282, 1e3)):
        expected = reference.soft_binary_argmax(x, k, tau)
        np.testing.assert_allclose(soft_binary_argmax(x, k, tau), expected, rtol=0, atol=2e-7)
        np.testing.assert_allclose(soft_binary_argmax(x.T, k, tau, axis=0), expected.T, rtol=0, atol=2e-7)
