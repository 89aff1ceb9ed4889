"""box_section where the entries are 1e16 to 1e60 times tau, so that float64 holds no mu beside them: all in the end
falls on the few entries whose bounds mu crosses there. Against exact rational arithmetic."""

import contextlib

import numpy as np
import pytest
import torch

import hypersimplex.torch as hst
from hypersimplex.torch import backends
from tests.budgets.boxes import Boxes, solve_exactly
from tests.frontends import FLOAT32, FLOAT64, eps, every_front_end_and_dtype

INF = np.inf
SCALES = {FLOAT32: (1e16, 1e18, 1e22, 1e32), FLOAT64: (1e16, 1e18, 1e20, 1e23, 1e32, 1e60)}
KINDS = ("without an upper bound", "without a lower bound", "weighted", "bounded and weighted", "mixed")


def problems(scale, kind, dtype, rows=40, n=5):
    rng = np.random.default_rng(KINDS.index(kind))
    x = rng.normal(size=(rows, n)) * 10.0 ** rng.integers(-3, 3, (rows, 1))
    x[: rows // 4, 1] = x[: rows // 4, 0]  # ties
    lower, upper, weight = np.zeros((rows, n)), np.full((rows, n), INF), np.ones((rows, n))
    if "weighted" in kind or kind == "mixed":
        weight = rng.uniform(0.2, 3, (rows, n))
    if kind == "without a lower bound":
        lower, upper = -upper, lower
    elif kind == "bounded and weighted":
        upper = np.full((rows, n), 20.0)
    elif kind == "mixed":
        lower = rng.uniform(-2, 0.5, (rows, n))
        upper = np.where(rng.random((rows, n)) < 0.5, INF, lower + rng.uniform(0, 2, (rows, n)))
    ends = [np.clip(bound, -9, 9) for bound in (lower, upper)]
    least, most = ((weight * end).sum(-1) for end in ends)
    total = least + (most - least) * rng.uniform(0.05, 0.95, rows)
    given = (x, total, lower, upper, weight, np.abs(x).max(-1) / scale)
    return Boxes(*(v.astype(dtype).astype(np.float64) for v in given))


@every_front_end_and_dtype((FLOAT32, FLOAT64))
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_exact_arithmetic(fe, dtype, kind):
    for scale in SCALES[dtype]:
        b = problems(scale, kind, dtype)
        entries = {name: getattr(b, name).astype(dtype) for name in ("x", "lower", "upper", "weight")}
        y = fe.box_section(**b.arguments() | entries).astype(np.float64)
        size = 1 + np.abs(b.weight * y).sum(-1)
        assert np.all(np.abs((b.weight * y).sum(-1) - b.total) <= 128 * eps(dtype) * size), scale
        assert np.all(np.abs(y - solve_exactly(b)) <= 1024 * eps(dtype) * size[:, None]), scale


@pytest.mark.parametrize("plain", [False, True])
def test_the_gradient_is_that_of_the_entry_that_is_free(plain):
    x, total, weight = np.array([1.3e4, 2.1e4, -3e3]), 2.5, np.array([1.0, 2.0, 1.0])
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x, total, weight)]
    with backends.plain_only() if plain else contextlib.nullcontext():
        y = hst.box_section(leaves[0], leaves[1], 0.0, INF, leaves[2], 1e-15)
        y[0].backward()
    assert y.tolist() == [2.5, 0.0, 0.0]  # 1.3e4/1 lies above 2.1e4/2
    assert leaves[0].grad.tolist() == [0.0, 0.0, 0.0]
    assert leaves[1].grad == 1.0
    assert leaves[2].grad[1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("scale", [1e16, 1e20, 1e32])
def test_one_entry_takes_all_that_the_total_leaves(at_most, scale):
    x = torch.tensor([1.3e4, 2.1e4, -3e3], dtype=torch.float64)
    for plain in (False, True):
        with backends.plain_only() if plain else contextlib.nullcontext():
            y = hst.box_section(x, 2.5, 0.0, INF, tau=2.1e4 / scale, at_most=at_most)
        torch.testing.assert_close(y, torch.tensor([0.0, 2.5, 0.0], dtype=torch.float64), rtol=4e-16, atol=0)
