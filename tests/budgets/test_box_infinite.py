"""The derivatives of box_section where more entries are +inf than the total has room for: they share it as equals do.

On the free entries A, y = c w with c such that sum(w y) is the total. With m = sum_A(w v)/sum_A(w w) the gradient of
sum(v y) is m to the total, -m y + c (v - w m) to the weights on A and -m y elsewhere, and 0 to x and tau.
"""

import contextlib

import numpy as np
import pytest
import torch

import hypersimplex as hs
import hypersimplex.torch as hst
from hypersimplex.torch import backends

INF = np.inf
PROBLEMS = [  # x, total, lower, upper, weight
    pytest.param(([INF, INF, 0], 1, [0, 0, 0], [1, 1, 1], [1, 2, 1]), id="two"),
    pytest.param(([INF, INF, INF, 5], 1.5, [0, 0.3, 0, -0.25], [1, 1, 0.2, 1], [1, 2, 3, 0.5]), id="one at its bound"),
    pytest.param(([INF, -INF, INF, 0.5] * 5, 2, [-0.25, 0, 0, 0] * 5, [INF] * 20, [1, 3, 0.5, 2] * 5), id="no bound"),
]
each_problem = pytest.mark.parametrize("problem", PROBLEMS)


def by_differences(problem, v, h=1e-6):
    x, total, lower, upper, weight = (np.array(a, np.float64) for a in problem)
    moves = h * np.eye(len(x))
    y = [hs.box_section(x, total, lower, upper, weight + move, 0.7) for move in (*moves, *-moves)]
    return (np.array(y[: len(x)]) - np.array(y[len(x) :])) @ v / (2 * h)


def leaves_of(problem, dtype=torch.float64):
    return [torch.tensor(a, dtype=dtype, requires_grad=True) for a in (*problem, 0.7)]


@each_problem
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_the_gradient_to_the_weights(problem, plain, at_most, again):
    leaves = leaves_of(problem)
    v = torch.linspace(1, 2, len(problem[0]), dtype=torch.float64) ** 3
    with backends.plain_only() if plain else contextlib.nullcontext():
        y = hst.box_section(*leaves, at_most=at_most)
        found = torch.autograd.grad(y, leaves, v, create_graph=again)
        moved = torch.func.jvp(lambda w: hst.box_section(*leaves[:4], w, leaves[5]), (leaves[4],), (v,))[1]
    wanted = torch.tensor(by_differences(problem, v.numpy()))
    torch.testing.assert_close(found[4], wanted, rtol=1e-6, atol=1e-8)
    assert (wanted.abs() > 0.01).sum() >= 2
    assert not found[0].any()
    assert found[5].abs() < 1e-14
    torch.testing.assert_close((v * moved).sum(), (wanted * v).sum(), rtol=1e-6, atol=1e-8)


@each_problem
def test_the_second_derivative(problem):
    leaves = leaves_of(problem)

    def first(weight):
        y = hst.box_section(*leaves[:4], weight, 0.7)
        return torch.autograd.grad((y**3).sum(), weight, create_graph=True)[0]

    weight = leaves[4]
    assert torch.autograd.gradcheck(first, (weight,), atol=1e-6)


@each_problem
@pytest.mark.parametrize("x64", [False, True])
def test_the_gradient_to_the_weights_in_jax(problem, x64):
    jax = pytest.importorskip("jax", reason="JAX is in an environment of its own")
    import hypersimplex.jax as hsj

    v = np.linspace(1, 2, len(problem[0])) ** 3
    with jax.enable_x64(x64):
        dtype = np.float64 if x64 else np.float32
        given = [np.array(a, dtype) for a in (*problem, 0.7)]
        found = jax.jit(jax.grad(lambda *a: (hsj.box_section(*a) * v.astype(dtype)).sum(), (0, 4, 5)))(*given)
        found = [np.asarray(g) for g in found]
    np.testing.assert_allclose(found[1], by_differences(problem, v), rtol=1e-6 if x64 else 1e-5, atol=1e-5)
    assert not found[0].any()
    assert abs(found[2]) < 1e-5
