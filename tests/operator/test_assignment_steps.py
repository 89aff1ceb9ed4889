"""What the search for biases is made of: the rows' answers, of memory and of tensors, and one step of it."""

import numpy as np
import pytest
import torch

from hypersimplex import _assignment
from hypersimplex._numpy_assignment import MemoryRows
from hypersimplex.torch._assignment_rows import TensorRows
from hypersimplex.torch.backends import plain

TAU = 0.3


@pytest.fixture
def both():
    x = np.random.default_rng(0).standard_normal((50, 7))
    x[3, 2], x[8, 1], x[9, 5] = -np.inf, -np.inf, np.inf
    k = np.full(50, 2.0)
    memory = MemoryRows(x, 0.0, k, TAU, 1, "axis -1")
    tensors = TensorRows(torch.from_numpy(x), torch.from_numpy(k), TAU, plain, np.asarray, np.asarray)
    return memory, tensors


@pytest.mark.parametrize("window", [TAU, 2.0])
def test_pairs_of_columns_by_their_definition(both, window):
    bias = np.linspace(0, 1, 7)
    for rows in both:
        rows.place(bias)
        # The middle of the window is the middle of (mu, mu + tau); entries at its ends do not count.
        above = np.asarray(rows.z) - np.asarray(rows.mu).reshape(-1, 1)
        inside = np.abs(above - TAU / 2) < window / 2
        expected = inside.T @ (inside / np.maximum(inside.sum(1, keepdims=True), 1))
        np.fill_diagonal(expected, 0)
        np.testing.assert_allclose(rows.pairs(window), expected, atol=1e-12)


def test_memory_and_tensors_agree(both):
    memory, tensors = both
    order = np.array([4, 0, 6, 1, 2, 5, 3])
    np.testing.assert_allclose(memory.place(np.arange(7.0)), tensors.place(np.arange(7.0)), atol=1e-12)
    np.testing.assert_allclose(memory.levels(0.3), tensors.levels(0.3))
    np.testing.assert_allclose(memory.forced(order), tensors.forced(order))
    for one, other in zip(memory.demand(), tensors.demand(), strict=True):
        np.testing.assert_allclose(one, other)
    np.testing.assert_array_equal(memory.sample(3).x, tensors.sample(3).x)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_ends_in_the_minimum_of_its_model(seed):
    """Move m minimizes m'Lm/2 - e'm over b + m >= 0 if and only if Lm - e is 0, or >= 0 where b + m is 0."""
    rng = np.random.default_rng(seed)
    pairs = np.triu(rng.random((9, 9)), 1)
    links = _assignment.laplacian(pairs + pairs.T)
    bias = np.where(rng.random(9) < 0.5, 0, rng.random(9))
    excess = rng.standard_normal(9)
    excess -= excess.mean() + 0.1  # a model that is too full as a whole has no minimum
    move, complete = _assignment._bounded_step(links, excess, bias, np.ones(9), 1e-9)
    assert complete
    slope = links @ move - excess
    assert (bias + move >= -1e-12).all()
    assert (slope >= -1e-8).all()
    np.testing.assert_allclose(slope[bias + move > 1e-9], 0, atol=1e-8)


def test_a_walk_below_zero_ends_at_zero(both):
    memory, _ = both
    search = _assignment._Search(memory, np.zeros(7), np.arange(7.0))
    move = np.array([0.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    search._walk(move, patient=False)  # columns without room send no step back
    np.testing.assert_array_equal(search.bias, [0.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def _found(rows, experts, room, tau=0.5):
    x = np.random.default_rng(rows).standard_normal((rows, experts)) + np.linspace(0, 3, experts)
    memory = MemoryRows(x, 1.0, None, tau, 1, "axis -1")
    capacity = np.full(experts, room * rows / experts)
    return memory, capacity, _assignment.find(memory, capacity, np.zeros(experts))


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_around_the_number_of_rows_from_which_a_sample_is_solved_first(more):
    """Fewer begin with the levels of their columns; either way some steps are left, and they end in the same place."""
    experts = 8
    memory, capacity, found = _found(2 * _assignment._SAMPLE * experts + more, experts, 1.0)
    np.testing.assert_allclose(memory.y.sum(0), capacity, rtol=1e-8)
    np.testing.assert_allclose(memory.y.sum(1), 1)
    assert found.bias.min() == 0
    assert found.steps <= 4  # six from nothing, of the fewer rows


def test_few_rows_with_room_for_all_begin_with_nothing():
    _, _, found = _found(60, 8, 8.0)
    np.testing.assert_array_equal(found.bias, np.zeros(8))
    assert found.steps == 0


@pytest.mark.parametrize("share", [0.0, 1e-30, 0.5, 1.0])
def test_levels_of_any_share(both, share):
    memory, tensors = both
    np.testing.assert_allclose(memory.levels(share), tensors.levels(share))
