"""soft_assignment of few tokens at a small tau: most columns have no entry inside, so Newton's step says little."""

import numpy as np
import pytest
import torch

import hypersimplex as hs
from hypersimplex import _assignment
from hypersimplex._numpy_assignment import MemoryRows
from hypersimplex.torch import BalancedRouter
from tests.operator.test_assignment import check_solution, skewed

PROBLEMS = [
    (8, 16, 1, 1.0, 0.02),
    (16, 16, 1, 1.0, 0.1),
    (16, 64, 1, 1.0, 0.1),
    (32, 64, 2, 1.0, 0.05),
    (32, 64, 2, 1.25, 0.05),
    (32, 64, 2, 1.0, 1e-5),
    (256, 64, 2, 1.0, 0.05),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("tokens", "experts", "k", "factor", "tau"), PROBLEMS)
def test_few_tokens(tokens, experts, k, factor, tau, dtype):
    capacity = np.full(experts, factor * tokens * k / experts)
    for seed in range(10):
        x = skewed(tokens, experts, seed, dtype)
        y, bias = hs.soft_assignment(x, k, capacity, tau)
        assert np.abs(y.sum(1, dtype=np.float64) - k).max() < 1e-5
        over = (y.sum(0, dtype=np.float64) - capacity) / np.maximum(capacity, 1)
        exact = 1e-5 if dtype == np.float32 else 2e-9
        assert over.max() < exact
        assert np.abs(over[bias > 0]).max() < exact
        if dtype == np.float64:
            check_solution(x, k, capacity, tau, y, bias, exact)


@pytest.mark.parametrize(("tokens", "experts", "k", "factor", "tau"), PROBLEMS)
def test_projections_of_few_tokens(tokens, experts, k, factor, tau):
    capacity = np.full(experts, factor * tokens * k / experts)
    for seed in range(10):
        rows = MemoryRows(skewed(tokens, experts, seed), k, None, tau, 1, "axis -1")
        assert _assignment.find(rows, capacity, np.zeros(experts)).passes <= 300


def test_a_router_of_many_experts_and_few_tokens():
    torch.manual_seed(0)
    router = BalancedRouter(64, 2, 1.25, 0.05)
    for _ in range(20):
        x = (torch.randn(128, 64) + torch.linspace(0, 3, 64)).requires_grad_()
        y = router(x)
        y.pow(2).sum().backward()
        assert y.sum(0).max() < 1.25 * 128 * 2 / 64 + 1e-5
        assert torch.isfinite(x.grad).all()
