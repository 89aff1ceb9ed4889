"""Every curve in every front end: values against a bisection in float64, edges, and what the curves are elsewhere."""

import numpy as np
import pytest

from hypersimplex import reference
from hypersimplex._curves import CURVES
from tests.frontends import FLOAT32, FLOAT64, every_front_end, every_front_end_and_dtype, tolerance

INF, NAN = np.inf, np.nan
every_curve = pytest.mark.parametrize("curve", CURVES)
every_smooth_curve = pytest.mark.parametrize("curve", CURVES[1:])
both_precisions = every_front_end_and_dtype((FLOAT32, FLOAT64))
every_dtype = every_front_end_and_dtype()

SHARES = {
    "exp": lambda t: np.exp(np.minimum(t, 0)),
    "logistic": lambda t: 1 / (1 + np.exp(-t)),
    "laplace": lambda t: np.where(t < 0, np.exp(np.minimum(t, 0)) / 2, 1 - np.exp(-np.maximum(t, 0)) / 2),
}


def close(y, expected, dtype, x=0.0, tau=1.0):
    """Within 1e-9 in float64 and 4e-7 in float32, times the size of x/tau; half precision rounds the result."""
    finite = np.where(np.isfinite(x), np.abs(np.asarray(x, np.float64)), 0)
    room = {FLOAT64: 1e-9, FLOAT32: 4e-7}.get(dtype, 2 * tolerance(dtype))
    assert y.dtype == dtype
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, rtol=0, atol=room * max(1, finite.max() / tau))


def hard_rows(n, seed):
    """Twelve rows: spread out, tied, masked, certain, and with every kind of k."""
    rng = np.random.default_rng(seed)
    x, k = rng.normal(size=(12, n)), rng.uniform(0.2, 0.8, 12) * n
    x[1], x[2] = np.round(x[1]), x[2, 0]
    x[3, : n // 4], x[4, -(n // 5) :] = -INF, INF
    k[::2] = np.floor(k[::2])
    k[3:9] = n // 2, n - n // 4 + 0.5, 1e-3, n - 1e-3, 0, n
    return x, k


@both_precisions
@every_curve
@pytest.mark.parametrize("tau", [1e-6, 1e-2, 0.7, 30.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_values_are_those_of_a_bisection(fe, dtype, curve, tau, offset):
    x, k = hard_rows(40, 1)
    x = (x + offset).astype(dtype)
    expected = reference.soft_binary_argmax(x, k, tau, curve=curve)
    close(fe.soft_topk(x, k, tau, curve=curve), expected, dtype, x, tau)
    wide = reference.threshold(x, k, tau, curve=curve)
    mu = np.asarray(fe.threshold(x, k, tau, curve=curve), np.float64)
    np.testing.assert_array_equal(np.isfinite(mu), np.isfinite(wide))
    np.testing.assert_array_equal(mu[~np.isfinite(wide)], wide[~np.isfinite(wide)])
    some = np.isfinite(wide) & (np.abs(k - 20) < 19)  # near the ends the slopes are too small to fix mu
    room = {FLOAT64: 1e-8, FLOAT32: 1e-4}[dtype]
    np.testing.assert_allclose(mu[some], wide[some], rtol=0, atol=room * (tau + offset + 1))


@both_precisions
@every_smooth_curve
@pytest.mark.parametrize("shape", [(3, 1), (2, 2), (1, 1000), (40, 9)])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_shape_and_axis(fe, dtype, curve, shape, axis):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    k = 0.4 * shape[axis]
    expected = reference.soft_binary_argmax(x, k, 0.3, axis=axis, curve=curve)
    close(fe.soft_topk(x, k, 0.3, axis=axis, curve=curve), expected, dtype, x, 0.3)
    close(fe.soft_topk(x.T, k, 0.3, axis=1 - axis, curve=curve), expected.T, dtype, x, 0.3)


@every_dtype
@every_smooth_curve
def test_half_precision_computes_in_float32_and_returns_its_own(fe, dtype, curve):
    x = np.random.default_rng(2).normal(size=(3, 33)).astype(dtype)
    expected = reference.soft_binary_argmax(x.astype(np.float64), 4.5, 0.5, curve=curve)
    close(fe.soft_topk(x, 4.5, 0.5, curve=curve), expected, dtype, x, 0.5)


@both_precisions
def test_exp_at_k_of_one_is_softmax(fe, dtype):
    x = np.random.default_rng(3).normal(size=(5, 70)).astype(dtype)
    e = np.exp(x.astype(np.float64) / 0.4)
    close(fe.soft_topk(x, 1, 0.4, curve="exp"), e / e.sum(1, keepdims=True), dtype, x, 0.4)
    close(fe.threshold(x, 1, 0.4, curve="exp"), 0.4 * np.log(e.sum(1)), dtype, x, 0.4)


@both_precisions
@pytest.mark.parametrize("k", [1 - 1e-9, 1.0, 1 + 1e-9, 1 - 1e-3, 1 + 1e-3])
@pytest.mark.parametrize("gap", [0.0, 1.0, 100.0])
def test_exp_around_a_k_of_one(fe, dtype, k, gap):
    x = np.array([gap, 0.0, -0.3, -2.0], dtype)
    close(fe.soft_topk(x, k, curve="exp"), reference.soft_binary_argmax(x, k, curve="exp"), dtype, x)


@both_precisions
@every_smooth_curve
def test_the_definitions_by_a_bisection_of_their_own(fe, dtype, curve):
    """LML (Amos and others) and LapSum (Struski and others) are defined by their S alone; exp never exceeds 1."""
    x = np.random.default_rng(4).normal(size=25).astype(dtype)
    low, high = -50.0, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        above = SHARES[curve]((x.astype(np.float64) - middle) / 0.5).sum() > 6.3
        low, high = (middle, high) if above else (low, middle)
    close(fe.soft_topk(x, 6.3, 0.5, curve=curve), SHARES[curve]((x.astype(np.float64) - low) / 0.5), dtype, x, 0.5)


@every_dtype
@every_curve
def test_edges(fe, dtype, curve):
    def solved(x, k, tau=1.0):
        return np.asarray(fe.soft_topk(np.array(x, dtype), k, tau, curve=curve), np.float64)

    x = [3.0, 1.0, 2.0, 0.5]
    np.testing.assert_array_equal(solved(x, 0), np.zeros(4))
    np.testing.assert_array_equal(solved(x, 4), np.ones(4))
    np.testing.assert_allclose(
        solved([7.0] * 8, 3, 1e-3), np.full(8, 0.375), rtol=3e-3 if dtype.itemsize == 2 else 1e-6
    )
    np.testing.assert_array_equal(solved([INF, INF, INF, 0.0], 1.5), [0.5, 0.5, 0.5, 0])
    np.testing.assert_array_equal(solved([INF, -INF, INF, 0.0], 2), [1, 0, 1, 0])
    np.testing.assert_array_equal(solved([INF, -INF, 5.0, 0.0], 3), [1, 0, 1, 1])
    np.testing.assert_array_equal(solved([-INF, -INF], 0), [0, 0])
    np.testing.assert_array_equal(solved([[NAN, 1.0], [1.0, 1.0]], 1), [[NAN, NAN], [0.5, 0.5]])
    np.testing.assert_array_equal(solved([-INF, -INF, 5.0, 0.0], 1.3)[2:], solved([5.0, 0.0], 1.3))
    np.testing.assert_allclose(solved([INF, 3.0, 2.0], 1.25)[1:], solved([3.0, 2.0], 0.25), rtol=1e-6)
    np.testing.assert_array_equal(solved(x, 2, 1e-6), [1, 0, 1, 0])
    assert fe.soft_topk(np.empty((0, 3), dtype), 1, curve=curve).shape == (0, 3)
    assert fe.soft_topk(np.empty((3, 0), dtype), 0, curve=curve).shape == (3, 0)
    hard = fe.soft_topk(np.array(x, dtype), 2, curve=curve, hard=True)
    np.testing.assert_array_equal(np.asarray(hard, np.float64), [1, 0, 1, 0])


@every_front_end
@every_smooth_curve
def test_a_masked_problem_equals_the_cut_down_one(fe, curve):
    dtype = fe.dtypes[-1]
    x = np.random.default_rng(5).normal(size=(6, 30)).astype(dtype)
    mask = np.arange(30) % 3 != 0
    y = fe.soft_topk(np.where(mask, x, -INF).astype(dtype), 7.5, 0.3, curve=curve)
    close(y[:, mask], np.asarray(fe.soft_topk(x[:, mask], 7.5, 0.3, curve=curve), np.float64), dtype, x, 0.3)
    assert not y[:, ~mask].any()


@every_front_end
@every_curve
def test_k_and_tau_of_every_slice(fe, curve):
    dtype = fe.dtypes[-1]
    x = np.random.default_rng(6).normal(size=(3, 4, 9)).astype(dtype)
    k, tau = np.linspace(0, 9, 12).reshape(3, 4), np.linspace(0.1, 3, 12).reshape(3, 4)
    y = fe.soft_topk(x, k, tau, curve=curve)
    close(y, reference.soft_binary_argmax(x, k, tau, curve=curve), dtype, x, 0.1)


@every_front_end
@every_smooth_curve
def test_segments_are_solved_each_by_itself(fe, curve):
    dtype = fe.dtypes[-1]
    x = np.random.default_rng(7).normal(size=20).astype(dtype)
    offsets, k, tau = np.array([0, 3, 3, 10, 20]), np.array([1.0, 0.0, 2.5, 9.0]), np.array([1.0, 1.0, 0.2, 0.5])
    y = fe.soft_topk_segments(x, k, offsets, tau, curve=curve)
    for begin, end, each, t in zip(offsets[:-1], offsets[1:], k, tau, strict=True):
        close(y[begin:end], reference.soft_binary_argmax(x[begin:end], each, t, curve=curve), dtype, x, 0.2)


@every_front_end
def test_errors(fe):
    x = np.array([0.1, 0.2, -INF], fe.dtypes[-1])
    message = r"^curve must be 'ramp', 'exp', 'logistic' or 'laplace', got 'cosine'$"
    for call in (fe.soft_topk, fe.threshold):
        with pytest.raises(ValueError, match=message):
            call(x, 1, curve="cosine")
    with pytest.raises(ValueError, match=message):
        fe.soft_topk_segments(x, 1, np.array([0, 3]), curve="cosine")
    for curve in CURVES:
        with pytest.raises(ValueError, match=r"^k must be between 0 and 3 .*, got 4$"):
            fe.soft_topk(x, 4, curve=curve)
        with pytest.raises(ValueError, match=r"^tau must be positive, got 0.0$"):
            fe.soft_topk(x, 1, 0.0, curve=curve)
        with pytest.raises(ValueError, match=r"^k must be at most 2, the number of entries that are not -inf, got 3"):
            fe.soft_topk(x, 3, curve=curve)
