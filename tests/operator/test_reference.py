"""The reference against mathematics it does not use: a QP solver, KKT, isotonic regression, sparsemax."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.isotonic import isotonic_regression

from hypersimplex import reference

SEEDS = range(12)


def random_problem(seed: int, max_n: int = 12) -> tuple[np.ndarray, float, float]:
    """Normal scores, half of them rounded so that there are ties; whole and fractional k."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, max_n + 1))
    x = rng.normal(size=n) * 10 ** rng.uniform(-1, 1)
    x = np.round(x) if seed % 2 else x
    k = float(rng.integers(0, n + 1)) if seed % 3 else rng.uniform(0, n)
    return x, k, 10 ** rng.uniform(-1, 1)


def kkt_violation(x: np.ndarray, y: np.ndarray, mu: float, k: float, tau: float) -> float:
    """The largest violation of the conditions that, together, only the solution meets.

    Minimising |tau y - x|^2 / (2 tau) with multipliers mu (sum), a (y >= 0) and b (y <= 1), all of them
    stationary: tau y_i - x_i + mu = a_i - b_i, where a_i > 0 needs y_i = 0 and b_i > 0 needs y_i = 1.
    """
    slope = tau * y - x + mu
    slack = np.where(y == 0, np.minimum(slope, 0), np.where(y == 1, np.maximum(slope, 0), slope)) / tau
    return max(np.abs(slack).max(), abs(y.sum() - k), -y.min(), y.max() - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_a_quadratic_program(seed):
    x, k, tau = random_problem(seed)
    z = x / tau
    solution = minimize(
        lambda y: np.sum((y - z) ** 2) / 2,
        np.full(x.size, k / x.size),
        jac=lambda y: y - z,
        bounds=[(0, 1)] * x.size,
        constraints={"type": "eq", "fun": lambda y: y.sum() - k, "jac": lambda y: np.ones_like(y)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    np.testing.assert_allclose(reference.soft_binary_argmax(x, k, tau), solution.x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(60))
def test_meets_the_kkt_conditions(seed):
    x, k, tau = random_problem(seed, max_n=200)
    y, mu = reference.soft_binary_argmax(x, k, tau), reference.threshold(x, k, tau)
    assert kkt_violation(x, y, float(mu), k, tau) < 1e-12


def test_the_kkt_check_sees_a_wrong_answer():
    x, k, tau = np.array([0.1, 1.6, 1.0]), 1.0, 1.0
    assert kkt_violation(x, np.array([0.0, 0.8, 0.2]), 0.8, k, tau) < 1e-12
    assert kkt_violation(x, np.array([0.0, 0.79, 0.21]), 0.8, k, tau) > 0.005
    assert kkt_violation(x, np.array([0.0, 1.0, 0.0]), 0.8, k, tau) > 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_equals_pool_adjacent_violators_on_the_sorted_input(seed):
    """The hypersimplex is the permutahedron of w = (1, ..., 1, rest of k, 0, ...), and the projection
    onto it is z - v, with v the best decreasing fit to z - w, all sorted in decreasing order."""
    x, k, tau = random_problem(seed, max_n=300)
    w = np.clip(k - np.arange(x.size), 0, 1)
    order = np.argsort(-x, kind="stable")
    z = x[order] / tau
    y = np.empty_like(x)
    y[order] = z - isotonic_regression(z - w, increasing=False)
    np.testing.assert_allclose(reference.soft_binary_argmax(x, k, tau), y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_k_of_one_is_sparsemax(seed):
    """Martins and Astudillo: the support is the longest prefix with 1 + j z_(j) > z_(1) + ... + z_(j)."""
    x, _, tau = random_problem(seed, max_n=300)
    z = np.sort(x / tau)[::-1]
    support = np.flatnonzero(1 + np.arange(1, z.size + 1) * z > np.cumsum(z))[-1] + 1
    y = np.maximum(x / tau - (z[:support].sum() - 1) / support, 0)
    np.testing.assert_allclose(reference.soft_binary_argmax(x, 1, tau), y, rtol=0, atol=1e-12)


def test_a_common_offset_costs_nothing():
    """Multiples of 2^-20 around 2^30: the differences are exact, so the answer is the same to the last bit."""
    x = np.round(np.random.default_rng(0).normal(size=1000) * 2**20) / 2**20
    offset = 2.0**30
    assert np.array_equal(
        reference.soft_binary_argmax(x, 100, 1e-3), reference.soft_binary_argmax(x + offset, 100, 1e-3)
    )


@pytest.mark.parametrize(
    ("x", "k", "mu"),
    [
        ([3.0, 1.0, 0.0], 1, 1.5),  # anything in [1, 3 - 1] will do: the middle
        ([3.0, 1.0, 0.0], 0, 3.0),
        ([3.0, 1.0, 0.0], 3, -1.0),
        ([np.inf, 1.0, 0.0], 1, 1.0),
        ([5.0, 1.0, -np.inf], 2, 0.0),
        ([np.inf, -np.inf], 1, 0.0),
        ([np.inf, np.inf, 0.0], 1, np.inf),
        ([], 0, 0.0),
        ([np.nan, 1.0], 1, np.nan),
    ],
)
def test_the_threshold_where_it_is_a_convention(x, k, mu):
    np.testing.assert_equal(reference.threshold(np.array(x), k), mu)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_equal_finite_differences(seed):
    x, k, tau = random_problem(2 * seed, max_n=30)
    k = min(np.floor(k), x.size - 1) + 0.3  # at a whole k, as at a tie (odd seeds), there may be a kink
    v = np.random.default_rng(seed).normal(size=x.size)
    h = 1e-7
    to_x, to_k, to_tau = reference.vjp(reference.soft_binary_argmax(x, k, tau), v, tau)

    def value(x, k, tau):
        return v @ reference.soft_binary_argmax(x, k, tau)

    by_x = [(value(x + e, k, tau) - value(x - e, k, tau)) / (2 * h) for e in h * np.eye(x.size)]
    np.testing.assert_allclose(to_x, by_x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(to_k, (value(x, k + h, tau) - value(x, k - h, tau)) / (2 * h), atol=1e-6)
    np.testing.assert_allclose(to_tau, (value(x, k, tau + h) - value(x, k, tau - h)) / (2 * h), atol=1e-5)
