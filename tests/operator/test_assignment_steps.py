"""What the search for biases is made of: the rows' answers, of memory and of tensors, and one step of it."""

import numpy as np
import pytest
import torch

from hypersimplex import _assignment, _kernel
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


def _graph(seed, density):
    """Links, biases, and excess of nine columns; the parts of the graph by the powers of its matrix."""
    rng = np.random.default_rng(seed)
    pairs = np.triu(rng.random((9, 9)) * (rng.random((9, 9)) < density), 1)
    pairs += pairs.T
    bias = np.where(rng.random(9) < 0.5, 0, rng.random(9))
    parts = np.argmax(np.linalg.matrix_power(np.eye(9) + pairs, 9) > 0, 1)
    return pairs, bias, rng.standard_normal(9), parts


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_a_step_ends_in_the_minimum_of_its_model(seed, density):
    """Move m minimizes m'Lm/2 - e'm over b + m >= 0 if and only if Lm - e is 0, or >= 0 where b + m is 0."""
    pairs, bias, excess, parts = _graph(seed, density)
    for part in np.unique(parts):
        excess[parts == part] -= excess[parts == part].mean() + 0.1
    links, move = np.diag(pairs.sum(1)) - pairs, np.empty(9)
    complete, longest, deviation = _kernel.column_step(pairs, bias, excess, np.ones(9), 1e-9, move)
    assert complete
    slope = links @ move - excess
    assert (bias + move >= -1e-12).all()
    assert (slope >= -1e-8).all()
    np.testing.assert_allclose(slope[bias + move > 1e-9], 0, atol=1e-8)
    assert longest == np.abs(move).max()
    np.testing.assert_allclose(deviation, move.std(), rtol=1e-9)


@pytest.mark.parametrize(("over", "complete"), [(-1e-6, True), (1e-10, True), (1e-6, False)])
def test_a_part_that_is_too_full_as_a_whole_has_no_minimum(over, complete):
    """Columns 0 and 1 are linked; what they have over their capacity together must be below the slack."""
    pairs = np.zeros((3, 3))
    pairs[0, 1] = pairs[1, 0] = 1
    excess, move = np.array([0.5 + over, -0.5, -1.0]), np.empty(3)
    found, _, _ = _kernel.column_step(pairs, np.zeros(3), excess, np.array([1.0, 1.0, 100.0]), 1e-9, move)
    assert found == complete
    np.testing.assert_allclose(move, [0.5, 0, 0], atol=2e-6)


@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("seed", range(10))
def test_the_inverse_of_the_columns_with_a_bias(seed, density):
    """In each part of the graph the first column of the least bias is held."""
    pairs, bias, _, parts = _graph(seed, density)
    np.testing.assert_array_equal(_assignment.components(pairs), parts)
    links, inverse = np.diag(pairs.sum(1)) - pairs, np.empty((9, 9))
    least = [min(np.flatnonzero(parts == part), key=lambda i: bias[i]) for part in np.unique(parts)]
    free = (bias > 0) & ~np.isin(np.arange(9), least)
    _kernel.column_inverse(pairs, bias, inverse)
    expected = np.zeros((9, 9))
    expected[np.ix_(free, free)] = np.linalg.inv(links[np.ix_(free, free)])
    np.testing.assert_allclose(inverse, expected, rtol=1e-9, atol=1e-12)


def test_a_walk_below_zero_ends_at_zero(both):
    memory, _ = both
    search = _assignment._Search(memory, np.zeros(7), np.arange(7.0))
    move = np.array([0.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    search._walk(move, search.bias, np.inf)  # columns without room send no step back
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
