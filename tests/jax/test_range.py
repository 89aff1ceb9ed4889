"""Numbers near the ends of the dtype's range: masks such as -1e30 or finfo.min, entries that are 1e30 tau apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex.jax as hsj
from hypersimplex import reference

pytestmark = pytest.mark.usefixtures("each_way")

LARGEST = float(np.finfo(np.float32).max)


def check(x, k, tau=1.0, atol=2e-6):
    x = np.asarray(x, np.float32)
    want = reference.soft_binary_argmax(x, np.float32(k), np.float32(tau))
    for got in (hsj.soft_binary_argmax(x, k, tau), jax.jit(hsj.soft_binary_argmax)(x, k, tau)):
        np.testing.assert_allclose(got, want, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("x", "k", "tau"),
    [
        ([0.0] * 10 + [-1e30] * 6, 12, 0.01),
        ([0, 1, -LARGEST, -LARGEST], 3, 1.0),
        ([0, 1, LARGEST, LARGEST], 1, 1.0),
        ([LARGEST, -LARGEST, -LARGEST], 1.5, 1e-3),
        ([-LARGEST] * 4, 1, 1e36),
        ([1.0, 1e30], 0.4946906, 0.00032721314),
        ([0, 1, -1e19, -1e19, 1e19], 1.0595639, 1.0),
        ([0, -1.0, -LARGEST, -2e31, -LARGEST], 4, 7.97e34),
    ],
)
def test_entries_very_many_tau_apart(x, k, tau):
    check(x, k, tau)


@pytest.mark.parametrize("n", [5, 50, 1000, 20_000])
@pytest.mark.parametrize("scale", [1e19, 1e25, 1e30, 1e38, LARGEST])
def test_k_beyond_what_finite_masks_leave(n, scale):
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 0.9):
        x = np.where(rng.random(n) < share, -scale, rng.normal(size=n))
        for k in (1, 0.3 * n, 0.75 * n, n - 1):
            check(x, k, 0.1, atol=1e-5)


@pytest.mark.parametrize("scale", [1e19, 1e30, 1e37, LARGEST])
def test_ties_and_spread_at_a_large_scale(scale):
    rng = np.random.default_rng(1)
    for n in (2, 50, 1000):
        for k in (0.5, 1, 0.4 * n + 0.25):
            check(rng.choice([0, 1, scale, -scale], size=n), k, 0.1, atol=1e-5)
            check(rng.uniform(-1, 1, size=n) * scale, k, 0.1, atol=1e-5)


def test_the_largest_and_the_smallest_tau():
    for tau in (LARGEST, 3e38, 1e37):
        check([0.0, 1.0, 2.0], 1, tau)
    for tau in (1e-37, 2e-38):
        check([0.0, 1.0, 2.0], 1.5, tau)
    to_tau = jax.jit(jax.grad(lambda tau: hsj.soft_binary_argmax(jnp.array([0.0, 1.0, 2.0]), 1, tau)[0]))
    assert to_tau(3e38) == 0


def test_the_smallest_k():
    check([0.12573022, -0.13210486], 1.1152300883040828e-10, atol=1e-7)
    check([2.0], 2.220446049250313e-16, atol=1e-7)


@pytest.mark.usefixtures("x64")
def test_float64():
    x = np.array([0.0] * 10 + [-1e300] * 6)
    np.testing.assert_allclose(
        hsj.soft_binary_argmax(x, 12, 0.01), reference.soft_binary_argmax(x, 12, 0.01), atol=1e-12
    )
