"""Rows of box sections that the kernel solves in step, by sums in single precision first."""

import numpy as np
import pytest
import torch

import hypersimplex as hs
from hypersimplex import _kernel
from hypersimplex.torch import box_section
from tests.budgets.boxes import random_boxes

GIVEN = {"arrays": (), "numbers": ("lower", "upper", "weight"), "both": ("lower", "weight")}


def sizes():
    """Rows and entries: registers, chains of 128 of them, rows in step, and as many as stay in the cache."""
    c = _kernel.constants()
    lanes, rows = c["float32_lanes"], c["box_rows"]
    entries = [lanes, 2 * lanes, 64 * lanes, 128 * lanes, c["box_rows_entries"] // rows, c["box_rows_entries"]]
    yield from ((3, n + d) for n in entries for d in (-1, 0, 1))
    yield from ((m * rows + d, 5) for m in (1, 2) for d in (-1, 0, 1))


def problem(rows, n, numbers):
    """In float64, of numbers that float32 holds; the last row has an entry that no sum in single precision takes."""
    b = random_boxes(rows, n, rows + n, np.float32)
    b.x[b.x == -np.inf] = -50
    b.x[-1, 0] = np.inf
    if numbers:
        b.lower, b.weight = np.full_like(b.x, -0.25), np.full_like(b.x, 1.5)
        b.upper = np.full_like(b.x, 0.75) if "upper" in numbers else np.maximum(b.upper, 0.5)
        b.total = 1.5 * n * np.linspace(-0.2, 0.4, rows)
    return b


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("kind", GIVEN)
def test_rows_do_not_depend_on_their_neighbors(kind, at_most):
    """Bit by bit as each row alone, and what float64 finds, rounded."""
    for rows, n in sizes():
        b = problem(rows, n, GIVEN[kind])
        given = {name: torch.from_numpy(v) for name, v in b.arguments().items()}
        given |= {name: given[name].float() for name in ("x", "lower", "upper", "weight")}
        y = _solve(given, GIVEN[kind], slice(None), at_most)
        for r in {0, rows // 2, rows - 1}:
            np.testing.assert_array_equal(_solve(given, GIVEN[kind], slice(r, r + 1), at_most)[0], y[r])
        exact = hs.box_section(b.x, b.total, b.lower, b.upper, b.weight, b.tau, at_most=at_most)
        np.testing.assert_allclose(y, exact, rtol=2e-7, atol=1e-12)


def _solve(given, numbers, rows, at_most):
    own = {name: v[rows] for name, v in given.items()} | {name: float(given[name][0, 0]) for name in numbers}
    return box_section(own.pop("x"), **own, at_most=at_most).numpy()


def test_totals_that_only_entries_at_their_bounds_meet():
    x = torch.arange(40 * 64, dtype=torch.float32).reshape(40, 64) * 7 % 64
    torch.testing.assert_close(box_section(x, 5.0), (x > 58.5).float(), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "value"), [("weight", -1.0), ("weight", 0.0), ("lower", 2.0), ("upper", np.nan)])
def test_one_wrong_number_among_many_rows_is_found(name, value):
    given = {"lower": torch.zeros(40, 64), "upper": torch.ones(40, 64), "weight": torch.ones(40, 64)}
    given[name][21, 63] = value
    with pytest.raises(ValueError, match=f"{name} must be|lower must be at most upper"):
        box_section(torch.randn(40, 64, generator=torch.Generator().manual_seed(0)), 20.0, **given)


@pytest.mark.parametrize("shape", [(40, 64), (1, 64), (40, 1), (1, 1)])
@pytest.mark.parametrize("wide", ["", "lower", "upper weight"])
def test_numpy_passes_single_precision_on_as_torch_does(shape, wide):
    """Bounds and weights in float32 beside float32 entries are read as they are, others as doubles."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 64)).astype(np.float32)
    given = {"lower": -rng.random(shape), "upper": 1 + rng.random(shape), "weight": 0.5 + rng.random(shape)}
    given = {name: v.astype(np.float64 if name in wide else np.float32) for name, v in given.items()}
    y = hs.box_section(x, 20.0, **given)
    ours = box_section(torch.from_numpy(x), 20.0, **{name: torch.from_numpy(v) for name, v in given.items()})
    np.testing.assert_array_equal(y, ours.numpy())
    exact = hs.box_section(x.astype(np.float64), 20.0, **given)
    np.testing.assert_allclose(y, exact, rtol=2e-7, atol=1e-12)
