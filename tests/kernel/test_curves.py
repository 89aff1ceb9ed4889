"""The kernel's smooth curves: values, edges, gradients, layouts."""

import itertools

import numpy as np
import pytest

from hypersimplex import _kernel
from tests.kernel import checks, curves, shapes

EXP, LOGISTIC, LAPLACE = curves.SMOOTH
inf, nan = np.inf, np.nan


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 100, 1000, 4095, 4096, 4097])
def test_values_are_those_of_a_bisection(n, dtype, curve):
    rng = np.random.default_rng(n)
    for scale, offset, tau in itertools.product((1, 10), (0, 50), (1.0, 0.1, 1e-3)):
        x = (scale * rng.normal(size=(3, n)) + offset).astype(dtype)
        x[1] = np.round(x[1])
        x[2, : n // 3] = -inf
        for k in (0.1, n / 10, n / 3, n / 2):
            y, mu = curves.solve_rows(curve, x, k, tau)
            right, _ = curves.bisect(curve, x, np.full(3, k), np.full(3, tau))
            size = np.maximum(1, np.abs(np.where(np.isfinite(x), x, 0)) / tau)
            atol = 4e-7 * size if dtype == np.float32 else 1e-9
            assert (np.abs(y - right) <= atol).all(), (scale, offset, tau, k)
            np.testing.assert_allclose(y.sum(1, dtype=np.float64), k, rtol=4 * np.finfo(dtype).eps, atol=1e-6)
            only = np.empty_like(mu)
            _kernel.project(x, k, tau, mu=only, curve=curve)
            np.testing.assert_array_equal(only, mu)


def test_exp_at_one_is_softmax():
    x = np.random.default_rng(0).normal(size=(20, 64)) * 3
    e = np.exp(x - x.max(1, keepdims=True))
    y, mu = curves.solve_rows(EXP, x, 1, 1)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(mu, np.log(np.exp(x).sum(1)), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_entry_does_not_hide_the_others(dtype):
    y, mu = curves.solve_rows(EXP, np.array([[100, 0, 0]], dtype), 2, 1)
    np.testing.assert_allclose(y, [[1, 0.5, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(mu, [np.log(2)], rtol=1e-6)


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tau", [1.0, 1e-3])
def test_edges(tau, dtype, curve):
    def solve(row, k):
        y, mu = curves.solve_rows(curve, np.array([row], dtype), k, tau)
        return y[0].tolist(), mu[0]

    least = {EXP: 0.5}.get(curve, -inf)
    assert solve([3, 1, 2], 0) == ([0, 0, 0], inf)
    assert solve([3, 0.5, 2], 3) == ([1, 1, 1], least)
    assert solve([3, -inf, 0.5], 2) == ([1, 0, 1], least)
    assert solve([inf, -inf, 2], 1) == ([1, 0, 0], inf)
    assert solve([inf, 1, inf], 1) == ([0.5, 0, 0.5], inf)
    y, mu = solve([1, nan, 2], 1)
    assert np.isnan([*y, mu]).all()
    y, _ = solve([inf, 2, 2, -inf], 2)
    np.testing.assert_allclose(y, [1, 0.5, 0.5, 0], rtol=1e-6)
    y, _ = solve([7, 7, 7, 7], 3)
    np.testing.assert_allclose(y, 0.75, rtol=1e-6)
    y, _ = solve([5], 0.25)
    np.testing.assert_allclose(y, 0.25, rtol=1e-6)
    x = np.array([[1, 2, 3], [1, -inf, -inf]], dtype)
    assert _kernel.project(x, 2, tau, y=np.empty_like(x), curve=curve) == ("masked", 1, 1)


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tau_next_to_nothing_and_numbers_at_the_ends_of_the_type(dtype, curve):
    x = np.array([[4, 1, 3, 2]], dtype)
    for tau in (1e-3, 1e-30, 1e-300):
        np.testing.assert_allclose(curves.solve_rows(curve, x, 2, tau)[0], [[1, 0, 1, 0]], atol=1e-6)
        np.testing.assert_allclose(curves.solve_rows(curve, x, 1.5, tau)[0], [[1, 0, 0.5, 0]], atol=1e-6)
    huge = np.finfo(dtype).max
    y = curves.solve_rows(curve, np.array([[huge, 0, 0, -huge]], dtype), 2, 1.0)[0]
    np.testing.assert_allclose(y, [[1, 0.5, 0.5, 0]], rtol=1e-6)
    y = curves.solve_rows(curve, x, 2, 1e30)[0]
    np.testing.assert_allclose(y, 0.5, rtol=1e-6)
    for k in (5e-324, 1e-30):
        assert curves.solve_rows(curve, x, k, 1.0)[0].sum() <= 1e-15


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (16, 8), (40, 39), (1000, 1), (4096, 4095)])
@pytest.mark.parametrize("gap", [40, 80, 100, 200, 400])
def test_a_whole_k_in_a_gap_of_many_tau(gap, n, k, dtype, curve):
    """Where y says nothing any more: exp ends at the edge, the others where both sides lack as much."""
    for tau in (1e-6, 1.0):
        x = np.zeros((1, n), dtype)
        x[0, k:] = -gap * tau
        wide = x.astype(np.float64)
        right = 0 if curve == EXP else wide[0, -1] / 2 + tau * np.log((n - k) / k) / 2
        y, mu = curves.solve_rows(curve, x, k, tau)
        np.testing.assert_allclose(y, wide == 0, rtol=0, atol=1e-6)
        np.testing.assert_allclose(mu / tau, [right / tau], rtol=0, atol=1e-4 if dtype == np.float32 else 1e-6)


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [4, 100, 4096, 5000])
def test_infinities_that_leave_nothing_to_share(n, dtype, curve):
    for seed in range(8):
        x = 10 * np.random.default_rng(seed).normal(size=(1, n)).astype(dtype)
        x[0, : n // 4], x[0, n // 4 : n // 2] = inf, -inf
        least = x[np.isfinite(x)].min() if curve == EXP else -inf
        for k, right, threshold in ((n // 4, x == inf, inf), (n - n // 4, x > -inf, least)):
            y, mu = curves.solve_rows(curve, x, k, 1.0)
            np.testing.assert_array_equal(y, right)
            assert mu == threshold


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("layout", shapes.LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("n", "slices"), [(5, 40), (16, 17), (129, 33), (4097, 6)])
def test_layouts(n, slices, dtype, layout, curve):
    for values, apart in (("normal", True), ("masked", False)):
        problem = shapes.Problem(n, slices, layout, dtype, values, apart, seed=n)
        curves.check(problem, checks.numbers(problem))


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("delta", [-1, 0, 1])
def test_a_row_in_blocks(delta, curve):
    n = _kernel.constants()["parallel_row"] + delta
    x = np.random.default_rng(0).normal(size=(1, n)).astype(np.float32)
    problem = shapes.Problem(n, 1, "last", "f4", "normal", False, 0)
    curves.check(problem, curves.as_numbers(x, n / 10, 1.0))


@pytest.mark.parametrize("curve", curves.SMOOTH)
def test_no_slope_no_gradient(curve):
    y = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [nan, nan, nan, nan]])
    v, grad, to_k, to_tau = np.full(y.shape, inf), np.ones(y.shape), np.ones(3), np.ones(3)
    assert _kernel.backward(y, v, 1.0, grad=grad, grad_k=to_k, grad_tau=to_tau, curve=curve) is None
    for got in (grad[:2], to_k[:2], to_tau[:2]):
        assert not got.any()
    for got in (grad[2], to_k[2], to_tau[2]):
        assert np.isnan(got).all()


@pytest.mark.parametrize("curve", curves.SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_segments_are_rows(dtype, curve):
    rng = np.random.default_rng(0)
    offsets = np.array([0, 5, 5, 6, 100, 5000, 5017])
    x, v = rng.normal(size=(2, 5017)).astype(dtype)
    sizes = np.diff(offsets)
    ks, taus = 0.4 * sizes, rng.uniform(0.5, 2, 6)
    y, grad, to_k, to_tau = np.empty_like(x), np.empty_like(x), np.empty(6), np.empty(6)
    assert _kernel.segments(x, offsets, 0, 1, y=y, ks=ks, taus=taus, curve=curve) is None
    arrays = {"y": grad, "grad_k": to_k, "grad_tau": to_tau}
    assert _kernel.segments(y, offsets, 0, 1, v=v, taus=taus, curve=curve, **arrays) is None
    for s, (from_, to) in enumerate(itertools.pairwise(offsets)):
        if to == from_:
            continue
        own = checks.Numbers(x[None, from_:to], v[None, from_:to], ks[s : s + 1], taus[s : s + 1])
        problem = shapes.Problem(to - from_, 1, "last", "f4", "normal", False, 0)
        alone = curves.solve(problem, own, curve, 1)
        np.testing.assert_array_equal(alone[0][0], y[from_:to])
        np.testing.assert_array_equal(alone[2][0], grad[from_:to])
        assert (to_k[s], to_tau[s]) == (alone[3][0], alone[4][0])


def test_a_curve_is_one_of_four():
    x = np.zeros((2, 3))
    for curve in (-1, 4):
        with pytest.raises(ValueError, match="curve must be 0, 1, 2 or 3"):
            _kernel.project(x, 1, 1, y=np.empty_like(x), curve=curve)
