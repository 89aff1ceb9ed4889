"""box_section for JAX both ways, by the C++ kernel and by jnp: what is solved, and how it is differentiated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex as hs
import hypersimplex.jax as hsj
from tests.budgets.boxes import random_boxes, solve
from tests.budgets.test_box_gradients import NAMES, by_formula

pytestmark = pytest.mark.usefixtures("each_way")
INF = np.inf


def numbers(seed=0, rows=6, n=9, dtype=np.float64):
    rng = np.random.default_rng(seed)
    entries = (rng.uniform(-1, -0.5, (rows, n)), rng.uniform(0.5, 1, (rows, n)), rng.uniform(0.5, 2, (rows, n)))
    each = np.linspace(-0.1, 0.1, rows) * n, *entries, np.linspace(0.7, 0.9, rows)
    return [np.asarray(v, dtype) for v in (rng.normal(size=(rows, n)), *each)]


def box(*arguments, at_most=False):
    return jnp.sum(hsj.box_section(*arguments, at_most=at_most) ** 3)


def test_a_kernel_serves_forward_and_backward(each_way):
    text = jax.jit(jax.grad(box)).lower(*numbers(dtype=np.float32)).as_text()
    for name in ("@hypersimplex_box(", "@hypersimplex_box_centered("):
        assert (name in text) == (each_way == "1")
    assert ("while" in text) == (each_way == "0")


@pytest.mark.parametrize("at_most", [False, True])
def test_values_are_those_of_sorted_breakpoints(x64, at_most):
    b = random_boxes(60, 40, 4, infinite=True)
    y = jax.jit(lambda b: hsj.box_section(**b, at_most=at_most))(b.arguments())
    size = np.abs(np.where(np.isfinite(b.x), b.x, 0)).max(-1) / b.tau + np.abs(b.weight * y).sum(-1)
    assert np.all(np.abs(y - solve(b, at_most)) < (1e-13 * (1 + size))[:, None])


def test_a_sum_of_many_entries_at_their_bounds_keeps_the_digits_of_a_free_one():
    x = np.concatenate([np.full(5000, 9.0), np.full(5000, -9.0), [0.25, 0.0]]).astype(np.float32)
    y = jax.jit(hsj.box_section)(x, 5000.75, 0.0, 1.0)
    np.testing.assert_allclose(y[-2:], [0.5, 0.25], atol=1e-6)


def test_a_step_from_one_number_to_the_next_is_shared():
    y = jax.jit(lambda x: hsj.box_section(x, 2, tau=1e-30))(np.array([3.0, 1.0, 1.0, 0.0], np.float32))
    np.testing.assert_array_equal(y, [1, 0.5, 0.5, 0])


def test_slices_without_a_solution_are_nan_and_the_others_are_not():
    x = np.tile(np.array([0.0, 1.0, 2.0, -INF], np.float32), (8, 1))
    x[1, 0] = np.nan
    total, tau = np.full(8, 2.0, np.float32), np.ones(8, np.float32)
    lower, upper, weight = np.zeros((8, 4), np.float32), np.ones((8, 1), np.float32), np.ones((8, 4), np.float32)
    total[2], tau[3], weight[4, 2], lower[5, 1], total[6] = 3.5, 0, -1, 2, -1
    y = np.asarray(jax.jit(hsj.box_section)(x, total, lower, upper, weight, tau))
    assert np.flatnonzero(np.isnan(y).all(1)).tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(y[[0, 7]], [[0, 1, 1, 0]] * 2)
    reached = np.asarray(jax.jit(lambda *a: hsj.box_section(*a, at_most=True))(x, total, lower, upper, weight, tau))
    assert np.flatnonzero(np.isnan(reached).all(1)).tolist() == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("at_most", [False, True])
def test_gradients_are_those_of_the_formula(x64, at_most):
    given = numbers(rows=20)
    y = np.asarray(hsj.box_section(*given, at_most=at_most))
    found = jax.jit(jax.grad(lambda *a: box(*a, at_most=at_most), tuple(range(6))))(*given)
    slack = ((given[4] * y).sum(-1) < given[1] - 1e-9)[:, None]
    assert slack.any() == at_most
    wanted = by_formula(y, 3 * y**2, *given, slack)
    for name, gradient in zip(NAMES, found, strict=True):
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)
    alone = jax.jit(jax.grad(lambda *a: box(*a, at_most=at_most)))(*given)
    np.testing.assert_allclose(alone, found[0], atol=1e-12)


def test_derivatives_of_both_orders_by_finite_differences(x64):
    from jax.test_util import check_grads

    check_grads(box, numbers(rows=3, n=5), order=2, modes=("fwd", "rev"), eps=1e-6)


def test_mixed_second_derivatives_do_not_depend_on_what_else_is_differentiated(x64):
    """To the input, the weight and tau, together and each pair alone."""
    given = numbers(rows=2, n=4)
    every = jax.jit(jax.jacfwd(jax.grad(box, (0, 4, 5)), (0, 4, 5)))(*given)
    for first, second in ((0, 4), (0, 5), (5, 0)):
        alone = jax.jit(jax.jacfwd(jax.grad(box, first), second))(*given)
        expected = every[(0, 4, 5).index(first)][(0, 4, 5).index(second)]
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(alone, expected, atol=1e-11, err_msg=f"{NAMES[first]}, {NAMES[second]}")


@pytest.mark.parametrize("which", range(6))
def test_a_batch_of_any_argument(x64, which):
    given = numbers(n=5)
    row = [v[0] for v in given]

    def run(value):
        arguments = [*row[:which], value, *row[which + 1 :]]
        return jax.value_and_grad(lambda *a: box(*a, at_most=True), (0, 4))(*arguments)

    many = jax.jit(jax.vmap(run))(given[which])
    single = jax.tree.map(lambda *a: np.stack(a), *(run(v) for v in given[which]))
    for got, want in zip(jax.tree.leaves(many), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_a_batch_of_cotangents_and_numbers_that_broadcast(x64):
    x, _, lower, upper, weight, _ = numbers(n=6)
    given = x.reshape(2, 3, 6), 0.5, lower[0, :1], upper[:3, :1], weight[0]
    full = [np.broadcast_to(v, (2, 3, 6)) for v in given[2:]]
    jacobian = jax.jit(jax.jacrev(hsj.box_section))(*given)
    np.testing.assert_allclose(jacobian, jax.jit(jax.jacfwd(hsj.box_section))(*given[:2], *full), atol=1e-12)


def test_infinite_entries_that_share_a_budget_have_no_gradient():
    v = np.array([1.0, 2.0, 5.0], np.float32)
    run = jax.jit(jax.grad(lambda x, total: jnp.sum(hsj.box_section(x, total) * v), (0, 1)))
    to_x, to_total = run(np.array([INF, INF, 0.0], np.float32), 1.0)
    assert to_x.tolist() == [0, 0, 0]
    assert to_total == 1.5


@pytest.mark.parametrize(("shift", "tau"), [(0.0, 1.0), (1e4, 1e-2), (1e6, 1e-3)])
def test_digits_that_mu_has_not(shift, tau):
    """In float32 the spacing of numbers near 1e6 is 62 times this tau."""
    rng = np.random.default_rng(0)
    x = (shift + rng.normal(size=(200, 6)) * tau * np.where(np.arange(200) % 2, 1, 30)[:, None]).astype(np.float32)
    total = rng.uniform(0.5, 5.5, 200).astype(np.float32)
    y = hsj.box_section(x, total, tau=np.float32(tau))
    expected = hs.box_section(x.astype(np.float64), total.astype(np.float64), tau=float(np.float32(tau)))
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)
