"""soft_assignment of every front end: the conditions that make a solution the only one, and another method's values.

y solves the problem if and only if 0 <= y <= 1, rows sum to k, columns to at most c, b >= 0, b > 0 only where a column
is full, and every row is the projection of x - b. Those are checked on random problems; a few are solved once more by
a solver of nonlinear programs in float64, which knows nothing of biases.
"""

import ml_dtypes
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import hypersimplex as hs
import hypersimplex.torch as hst
from hypersimplex import _assignment, _kernel
from hypersimplex._numpy_assignment import MemoryRows
from hypersimplex.torch import backends


def by_torch(x, k, capacity, tau=1.0):
    y, bias = hst.soft_assignment(torch.as_tensor(x), k, torch.as_tensor(capacity), tau)
    return y.numpy(), bias.numpy()


def by_plain_torch(x, k, capacity, tau=1.0):
    with backends.plain_only():
        return by_torch(x, k, capacity, tau)


def by_jax(x, k, capacity, tau=1.0):
    jax = pytest.importorskip("jax")
    from hypersimplex.jax import soft_assignment

    with jax.enable_x64() if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        y, bias = soft_assignment(x, k, capacity, tau)
        return np.asarray(y), np.asarray(bias)


FRONT_ENDS = {"numpy": hs.soft_assignment, "torch": by_torch, "plain torch": by_plain_torch, "jax": by_jax}


@pytest.fixture(params=FRONT_ENDS)
def assign(request):
    return FRONT_ENDS[request.param]


def skewed(tokens, experts, seed=0, dtype=np.float64):
    scores = np.random.default_rng(seed).standard_normal((tokens, experts))
    return (scores + np.linspace(0, 3, experts)).astype(dtype)


def by_programming(x, k, capacity, tau):
    """The problem as it stands, for SciPy's sequential least squares."""
    shape = x.shape
    rows, columns = np.repeat(np.eye(shape[0]), shape[1], 1), np.tile(np.eye(shape[1]), shape[0])
    conditions = [
        {"type": "eq", "fun": lambda y: rows @ y - k, "jac": lambda _: rows},
        {"type": "ineq", "fun": lambda y: capacity - columns @ y, "jac": lambda _: -columns},
    ]
    start = np.full(x.size, k / shape[1])
    found = minimize(
        lambda y: 0.5 * np.sum((y - x.ravel() / tau) ** 2), start, jac=lambda y: y - x.ravel() / tau, method="SLSQP",
        bounds=[(0, 1)] * x.size, constraints=conditions, options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    return found.x.reshape(shape)


def check_solution(x, k, capacity, tau, y, bias, tolerance):
    sums = y.sum(0, dtype=np.float64)
    scale = np.maximum(capacity, 1)
    assert (y >= 0).all()
    assert (y <= 1).all()
    assert np.allclose(y.sum(1, dtype=np.float64), k, atol=1e-5 if y.dtype == np.float32 else 1e-9)
    assert (bias >= 0).all()
    assert (sums <= capacity + tolerance * scale).all()
    assert (np.abs(sums - capacity) <= tolerance * scale)[bias > 0].all()
    again = hs.soft_binary_argmax(x - bias.astype(x.dtype), k, tau)
    assert np.allclose(y, again, atol=1e-5 if y.dtype == np.float32 else 1e-9)


@pytest.mark.parametrize(("k", "factor", "tau"), [(1, 1.0, 1.0), (2, 1.25, 0.5), (1.5, 1.0, 2.0)])
def test_equals_a_solver_of_quadratic_programs(assign, k, factor, tau):
    x = skewed(9, 4)
    capacity = np.full(4, factor * 9 * k / 4)
    y, bias = assign(x, k, capacity, tau)
    assert np.allclose(y, by_programming(x, k, capacity, tau), atol=1e-6)
    check_solution(x, k, capacity, tau, y, bias, 1e-8)


@pytest.mark.parametrize("tau", [0.02, 0.05, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_skewed_scores(tau, factor):
    x = skewed(1024, 32, dtype=np.float32)
    capacity = np.full(32, factor * 1024 * 4 / 32)
    y, bias = hs.soft_assignment(x, 4, capacity, tau)
    check_solution(x, 4, capacity, tau, y, bias, 1e-5)


def test_front_ends_agree_on_skewed_scores(assign):
    x = skewed(256, 8)
    capacity = np.full(8, 1.1 * 256 * 2 / 8)
    y, bias = assign(x, 2, capacity, 0.1)
    check_solution(x, 2, capacity, 0.1, y, bias, 1e-6)
    assert np.allclose(y, hs.soft_assignment(x, 2, capacity, 0.1)[0], atol=1e-8)


def test_random_problems():
    rng = np.random.default_rng(0)
    for _ in range(200):
        tokens, experts = rng.integers(1, 60), rng.integers(1, 12)
        x = rng.standard_normal((tokens, experts)) * rng.choice([0.3, 1, 3])
        k = (
            rng.uniform(0, experts, tokens)
            if rng.random() < 0.3
            else np.full(tokens, float(rng.integers(0, experts + 1)))
        )
        share = np.minimum(rng.uniform(0.5, 1.5, experts), 1e9)
        capacity = np.minimum(share / share.sum() * k.sum(), tokens)
        capacity += (k.sum() - capacity.sum()) / experts * rng.choice([1, 1.2]) + rng.choice([0, 0.5])
        capacity = np.minimum(capacity + 1e-12, tokens)
        if capacity.sum() < k.sum():
            continue
        tau = rng.choice([0.1, 1, 10])
        y, bias = hs.soft_assignment(x, k, capacity, tau)
        check_solution(x, k, capacity, tau, y, bias, 1e-6)


def test_scores_that_lie_thousands_of_tau_apart():
    """Few entries are inside then, and most columns are linked to none: puzzles rather than averages."""
    rng = np.random.default_rng(7)
    for _ in range(150):
        tokens, experts = rng.integers(20, 200), rng.integers(5, 20)
        x = rng.standard_normal((tokens, experts)) * rng.choice([3, 10]) + np.linspace(0, rng.choice([0, 10]), experts)
        if rng.random() < 0.4:
            x[:, 1:][rng.random((tokens, experts - 1)) < 0.2] = -np.inf
        k = rng.uniform(0.5, 4)
        capacity = np.full(experts, tokens * k / experts * rng.choice([1.0, 1.1, 2.0]) + 1e-9)
        tau = rng.choice([0.0001, 0.001, 0.01])
        y, bias = hs.soft_assignment(x, np.minimum(k, (x > -np.inf).sum(1)), capacity, tau)
        missed = (y.sum(0) - capacity) / np.maximum(capacity, 1)
        assert (missed <= 1e-6).all()
        assert (missed[bias > 0] >= -1e-6).all()


@pytest.mark.parametrize("tau", [1e-5, 1e-6])
def test_single_precision_is_widened_where_tau_asks_for_it(assign, tau):
    """x - b has seven digits in float32, and tau = 1e-6 would have one of them."""
    x = skewed(6, 4, dtype=np.float32)
    for capacity in (1.5, 1.6):
        y, bias = assign(x, 1, capacity, tau)
        assert y.dtype == bias.dtype == np.float32
        assert np.allclose(y.sum(1), 1, atol=1e-5)
        assert (y.sum(0) <= capacity * (1 + 2e-5)).all()
        assert np.allclose(y.sum(0)[bias > 0], capacity, rtol=2e-5)


def test_huge_scores_overflow_nowhere(assign):
    x = skewed(6, 4)
    y, _ = assign(x * 1e300, 1, 1.5, 1e300)
    assert np.allclose(y, assign(x, 1, 1.5, 1.0)[0], atol=1e-6)


def test_masks_and_padding(assign):
    x = skewed(40, 6)
    x[::3, 0] = -np.inf
    x[5] = -np.inf
    k = np.full(40, 2.0)
    k[5] = 0
    y, _ = assign(x, k, 78 / 6, 0.5)
    assert (y[x == -np.inf] == 0).all()
    assert np.allclose(y.sum(0), 13, atol=1e-8)
    assert np.allclose(y.sum(1), k)


def test_without_limits_it_is_the_projection(assign):
    x = skewed(10, 5)
    y, bias = assign(x, 2, np.inf, 0.5)
    assert np.allclose(y, hs.soft_binary_argmax(x, 2, 0.5), atol=1e-12)
    assert (bias == 0).all()


def test_ties_and_edges_of_k(assign):
    y, bias = assign(np.zeros((6, 3)), 1, 2, 0.1)
    assert np.allclose(y, 1 / 3)
    assert (bias == 0).all()
    assert (assign(skewed(6, 3), 0, 2)[0] == 0).all()
    assert (assign(skewed(6, 3), 3, 6)[0] == 1).all()


def test_capacity_zero_closes_an_expert(assign):
    y, _ = assign(skewed(12, 4), 1, np.array([6.0, 6.0, 6.0, 0.0]), 0.5)
    assert np.allclose(y[:, 3], 0, atol=1e-8)
    assert np.allclose(y.sum(1), 1)


def test_a_token_with_nan_leaves_the_others_alone(assign):
    x = skewed(13, 4)
    x[7, 2] = np.nan
    y, bias = assign(x, 1, 3, 0.5)
    rest = np.delete(np.arange(13), 7)
    alone, same = assign(x[rest], 1, 3, 0.5)
    assert np.isnan(y[7]).all()
    assert np.allclose(y[rest], alone, atol=1e-9)
    assert np.allclose(bias, same, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision(dtype):
    x = skewed(64, 8).astype(dtype)
    y, _ = hs.soft_assignment(x, 2, 16, 0.5)
    wide, _ = hs.soft_assignment(x.astype(np.float32), 2, 16, 0.5)
    assert y.dtype == dtype
    assert np.allclose(y.astype(np.float32), wide, atol=4e-3)


def test_infeasible_capacities_are_errors_with_the_numbers(assign):
    x = skewed(10, 4)
    with pytest.raises(ValueError, match="capacity must sum to at least 20, the sum of k over the tokens, got 16"):
        assign(x, 2, 4)
    x[:, 2:] = -np.inf
    with pytest.raises(ValueError, match=r"got 24, of which the masks and y <= 1 leave 12"):
        assign(x, 2, 6)
    x = skewed(10, 4)
    x[:6, 1:] = -np.inf
    with pytest.raises(ValueError, match=r"capacity must be at least 6 for experts 0 together.*got 4"):
        assign(x, 1, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((skewed(4, 3)[0], 1, 2), r"must have two dims, tokens and experts, got shape \(3,\)"),
        ((skewed(4, 3), 4, 9), r"k must be between 0 and 3 \(the size of (axis|dim) -1\), got 4"),
        ((skewed(4, 3), 1, np.ones(2)), r"capacity must have shape \(3,\), got \(2,\)"),
        ((skewed(4, 3), 1, -1.0), "capacity must be at least 0, got -1.0"),
        ((skewed(4, 3), 1, np.nan), "capacity must be at least 0, got nan"),
        ((skewed(4, 3), 1, np.array([4.0, np.nan, -1.0])), "capacity must be at least 0, got nan"),
        ((skewed(4, 3), 1, 2, 0.0), "tau must be positive, got 0.0"),
        ((np.full((4, 3), -np.inf), 1, 9), "k must be at most 0, the number of entries that are not -inf"),
    ],
)  # fmt: skip
def test_errors(assign, arguments, message):
    with pytest.raises(ValueError, match=message):
        assign(*arguments)


def test_empty(assign):
    y, bias = assign(np.zeros((0, 3)), 1, 2)
    assert y.shape == (0, 3)
    assert (bias == 0).all()


@pytest.mark.parametrize("tau", [0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
def test_steps_from_nothing_and_from_the_last_batch(tau):
    tokens, experts, k = 4096, 64, 8
    capacity = np.full(experts, tokens * k / experts)
    bias = np.zeros(experts)
    for seed, most in ((2, 10), (3, 4), (4, 4), (5, 4)):
        rows = MemoryRows(skewed(tokens, experts, seed, np.float32), k, None, tau, 2, "axis -1")
        found = _assignment.find(rows, capacity, bias)
        assert found.steps <= most
        assert np.abs(rows.y.sum(0, dtype=np.float64) / capacity - 1).max() < 1e-5
        bias = found.bias


SIZES = _kernel.constants()
WIDTHS = sorted({1, 2, 3, *(SIZES["float32_lanes"] + d for d in (-1, 0, 1)), 15, 16, 17, 63, 64, 65, 513})
BLOCKS = (SIZES["coactive_rows"] * times for times in (1, 2, SIZES["coactive_blocks"]))
ROWS = [0, 1, *(size + d for size in (SIZES["coactive_gathered"], *BLOCKS) for d in (-1, 0, 1))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "columns"), [(300, c) for c in WIDTHS] + [(r, 9) for r in ROWS])
def test_coactive_counts(rows, columns, dtype):
    rng = np.random.default_rng(rows + columns)
    v = rng.uniform(-1, 2, (rows, columns)).astype(dtype)
    v[rng.random(v.shape) < rng.uniform(0, 1, (rows, 1))] = 0
    v[rows // 2 : rows // 2 + 1] = np.nan
    sums, matrix = np.empty(columns), np.empty((columns, columns))
    _kernel.coactive(v, 0.0, 1.0, sums=sums, matrix=matrix, threads=2)
    mask = ((v > 0) & (v < 1)).astype(np.float64)
    expected = mask.T @ (mask / np.maximum(mask.sum(1, keepdims=True), 1))
    np.fill_diagonal(expected, 0)
    assert np.allclose(matrix, expected, rtol=1e-5, atol=1e-5)
    assert np.allclose(sums, np.nansum(v, 0, dtype=np.float64))
    alone = np.empty_like(matrix)
    _kernel.coactive(v, 0.0, 1.0, matrix=alone, threads=1)
    assert (alone == matrix).all()
