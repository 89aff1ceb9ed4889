"""Exact to the dtype where float32 is hard, and right where other implementations are known to fail."""

import numpy as np
import pytest
import torch

import hypersimplex as hs
import hypersimplex.torch as hst
from hypersimplex import reference
from tests.frontends import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FRONT_ENDS,
    NUMPY,
    TORCH,
    eps,
    every_front_end,
    every_front_end_and_dtype,
    to_torch,
    tolerance,
)

TEN_MILLION = 10_000_000


def ten_million_scores():
    return np.random.default_rng(0).standard_normal(TEN_MILLION, dtype=np.float32)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_k_and_tau_in_half_precision(dtype):
    x, k, tau = np.arange(6.0).reshape(2, 3), np.array([1, 1.5]), np.array([0.5, 2])
    found = hs.soft_binary_argmax(x, k.astype(dtype), tau.astype(dtype))
    np.testing.assert_array_equal(found, hs.soft_binary_argmax(x, k, tau))


@every_front_end
def test_ten_million_entries_sum_to_k(fe):
    k = TEN_MILLION // 10
    y = fe.soft_binary_argmax(ten_million_scores(), k)
    assert abs(y.sum(dtype=np.float64) - k) / k <= 1e-6


@pytest.mark.slow
def test_ten_million_entries_equal_the_reference():
    x, k = ten_million_scores(), TEN_MILLION // 10
    expected = reference.soft_binary_argmax(x, k)
    for fe in FRONT_ENDS:
        assert np.abs(fe.soft_binary_argmax(x, k) - expected).max() <= 1e-6, fe


@every_front_end
def test_two_million_entries_sum_to_k(fe):
    """Above 2^24/10 and beyond: a float32 counter or running sum stops growing long before."""
    x = np.random.default_rng(1).standard_normal(2_000_000, dtype=np.float32)
    y = fe.soft_binary_argmax(x, 200_000, 50.0)
    assert abs(y.sum(dtype=np.float64) - 200_000) / 200_000 <= 1e-6
    np.testing.assert_allclose(y, reference.soft_binary_argmax(x, 200_000, 50.0), rtol=0, atol=1e-6)


@every_front_end
@pytest.mark.parametrize("per_slice", [False, True])
def test_a_large_k_keeps_its_fraction(fe, per_slice):
    """One entry takes up the fraction of k, which k in float32 would have lost: there 200,000.3 is 200,000.296875."""
    x = np.random.default_rng(0).permutation(300_000).astype(np.float32)
    k = np.array([200_000.3]) if per_slice else 200_000.3
    y = fe.soft_binary_argmax(x[None], k, 0.5)[0]
    assert y[x == 99_999][0] == pytest.approx(0.3, abs=tolerance(FLOAT32, k=200_000))
    assert np.sum((y > 0) & (y < 1)) == 1


@every_front_end
def test_an_offset_of_a_million_with_a_small_tau(fe):
    x = (1e6 + np.random.default_rng(0).standard_normal(100_000)).astype(np.float32)
    y = fe.soft_binary_argmax(x, 10_000, 1e-3)
    np.testing.assert_allclose(y, reference.soft_binary_argmax(x, 10_000, 1e-3), rtol=0, atol=1e-5)


@every_front_end_and_dtype((FLOAT32, FLOAT64))
@pytest.mark.parametrize("axis", [0, 1])
def test_a_common_offset_changes_nothing(fe, dtype, axis):
    """Quarters between -8 and 8: exact in float32 at 1e6 too, so y has no excuse to move."""
    x = (np.random.default_rng(0).integers(-32, 33, size=(40, 40)) / 4).astype(dtype)
    offset = dtype.type(1e6)
    assert np.array_equal((x + offset) - offset, x)
    for k, tau in ((7, 1.0), (20.5, 4.0), (3, 0.3)):
        y = fe.soft_binary_argmax(x, k, tau, axis=axis)
        moved = fe.soft_binary_argmax(x + offset, k, tau, axis=axis)
        np.testing.assert_allclose(moved, y, rtol=0, atol=tolerance(dtype, 1e6, tau))


@every_front_end_and_dtype((FLOAT32, FLOAT64))
@pytest.mark.parametrize("shape", [(20_000, 3), (3, 20_000), (300, 3), (3, 300)])
def test_entries_over_thirty_orders_of_magnitude(fe, dtype, shape):
    """Newton steps do not settle there in the passes that the kernel allows them."""
    axis = int(shape[0] < shape[1])
    x = np.exp(80 * np.random.default_rng(0).random(shape)).astype(dtype)
    x[:, ::2] *= -1
    k = max(shape) / 10 + 0.5
    expected = reference.soft_binary_argmax(x.astype(np.float64), k, axis=axis)
    y = fe.soft_binary_argmax(x, k, axis=axis)
    np.testing.assert_allclose(y.sum(axis=axis, dtype=np.float64), k, rtol=1e-5)
    np.testing.assert_allclose(y.astype(float), expected, atol=1e-6)


@every_front_end_and_dtype((FLOAT32, FLOAT64))
@pytest.mark.parametrize("shape", [(70, 5), (70, 20), (5, 200), (20, 70)])
def test_entries_and_tau_of_a_few_steps_of_the_dtype(fe, dtype, shape):
    """The threshold has digits there that no number of the dtype has beside entries so large."""
    axis, step = int(shape != (20, 70)), 1024 * eps(dtype)
    steps, n = np.random.default_rng(0).integers(0, 9, shape), shape[axis]
    expected = reference.soft_binary_argmax(steps.astype(np.float64), 0.37 * n, 5.3, axis=axis)
    y = fe.soft_binary_argmax((1024 + steps * step).astype(dtype), 0.37 * n, 5.3 * step, axis=axis)
    np.testing.assert_allclose(y.astype(float), expected, atol=1e-6 if dtype == FLOAT32 else 1e-12)


@every_front_end_and_dtype((FLOAT32, FLOAT64))
@pytest.mark.parametrize("axis", [0, 1])
def test_several_entries_between_zero_and_one_over_many_orders_of_magnitude(fe, dtype, axis):
    """Nor do they here; and what is solved otherwise has more to add up than one entry."""
    rng = np.random.default_rng(0)
    x = (rng.choice([-1, 1], (200, 40)) * 10 ** rng.uniform(-12, 12, (200, 40))).astype(dtype)
    k, tau = rng.uniform(0, 40, 200), 10 ** rng.uniform(-3, 1, 200)
    expected = reference.soft_binary_argmax(x.astype(np.float64), k, tau)
    assert np.mean(((expected > 0) & (expected < 1)).sum(1) > 3) > 0.2
    y = fe.soft_binary_argmax(x if axis else x.T.copy(), k, tau, axis=axis)
    np.testing.assert_allclose((y if axis else y.T).astype(float), expected, atol=2e-5 if dtype == FLOAT32 else 1e-9)


@every_front_end_and_dtype((FLOAT16, BFLOAT16))
@pytest.mark.parametrize("axis", [0, 1])
def test_half_types_sum_to_k_at_65536_entries(fe, dtype, axis):
    """Every y is rounded once, to the nearest: the sum is off by rounding alone, not by a saturated counter."""
    n, k = 65_536, 6_553
    x = np.random.default_rng(0).normal(size=(2, n)).astype(dtype)
    y = fe.soft_binary_argmax(x if axis else np.ascontiguousarray(x.T), k, axis=axis)
    y = np.asarray(y if axis else y.T, np.float64)
    expected = reference.soft_binary_argmax(x, k)
    np.testing.assert_allclose(y, expected, rtol=0, atol=tolerance(dtype))
    rounded = expected.astype(dtype).astype(np.float64)
    # The roundings mostly cancel: the sum may differ from the correctly rounded one by few of them.
    np.testing.assert_allclose(y.sum(axis=1), rounded.sum(axis=1), rtol=1e-5)


@every_front_end_and_dtype((FLOAT16, BFLOAT16))
def test_half_types_are_computed_in_float32(fe, dtype):
    x = np.random.default_rng(0).normal(size=(5, 200)).astype(dtype)
    y = fe.soft_binary_argmax(x, 20.5, 0.3)
    in_float32 = fe.soft_binary_argmax(x.astype(np.float32), 20.5, 0.3)
    assert np.array_equal(y, in_float32.astype(dtype))
    mu = fe.threshold(x, 20.5, 0.3)
    assert np.array_equal(mu, fe.threshold(x.astype(np.float32), 20.5, 0.3))


@every_front_end
def test_a_mask_leaves_the_rest_of_the_slice_right(fe):
    """Masking equals leaving out."""
    x = np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    keep = np.random.default_rng(1).random(50) < 0.6
    masked = np.where(keep, x, -np.inf).astype(np.float32)
    y = fe.soft_binary_argmax(masked, 5)
    assert np.all(y[:, ~keep] == 0)
    np.testing.assert_allclose(y[:, keep], fe.soft_binary_argmax(x[:, keep], 5), rtol=0, atol=tolerance(FLOAT32))


@every_front_end
def test_k_above_n_is_never_clamped(fe):
    with pytest.raises(ValueError, match="k must be between 0 and 3"):
        fe.soft_binary_argmax(np.zeros(3), 4)


@every_front_end
def test_k_of_zero_gives_zeros(fe):
    assert np.array_equal(fe.soft_binary_argmax(np.array([3.0, 1.0, 2.0]), 0), np.zeros(3))


def gradient(x, k, v, **kwargs):
    x = x.clone().requires_grad_()
    (to_x,) = torch.autograd.grad(hst.soft_binary_argmax(x, k, **kwargs), x, v)
    return to_x


def test_equal_saturated_entries_get_no_gradient():
    x = torch.tensor([5, 5, 1, 0.9, 0.5, -7, -7, -7])
    expected = torch.tensor([0.0, 0, -1, 0, 1, 0, 0, 0])
    torch.testing.assert_close(gradient(x, 3, torch.arange(1.0, 9)), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", [0, 3])
def test_a_saturated_k_gives_a_finite_gradient_of_zero(k):
    x, v = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(gradient(x, k, v), torch.zeros(3))


def test_a_mask_leaves_the_gradient_of_the_rest_right():
    inf = float("inf")
    x, v = torch.tensor([0.3, -inf, 0.2, -inf, 0.9]), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    keep = x > -inf
    to_x = gradient(x, 1, v)
    assert torch.equal(to_x[~keep], torch.zeros(2))
    torch.testing.assert_close(to_x[keep], gradient(x[keep], 1, v[keep]))


def test_the_gradient_at_an_offset_of_a_million():
    rng = np.random.default_rng(0)
    x = torch.from_numpy((1e6 + rng.standard_normal(20_000)).astype(np.float32))
    v = torch.from_numpy(rng.standard_normal(20_000).astype(np.float32))
    y = reference.soft_binary_argmax(x.numpy(), 2000)
    expected, _, _ = reference.vjp(y, v.numpy())
    np.testing.assert_allclose(gradient(x, 2000, v), expected, rtol=0, atol=1e-5)


@every_front_end_and_dtype((FLOAT64,), (NUMPY, TORCH))
@pytest.mark.parametrize("n", [3, 1000])
def test_float64_is_not_computed_in_float32(fe, dtype, n):
    x = np.random.default_rng(n).normal(size=(2, n))
    y = fe.soft_binary_argmax(x, n / 3)
    np.testing.assert_allclose(y, reference.soft_binary_argmax(x, n / 3), rtol=0, atol=1e-14)
    np.testing.assert_allclose(y.sum(axis=1), n / 3, rtol=1e-14)


@every_front_end_and_dtype((FLOAT64,), (NUMPY, TORCH))
@pytest.mark.parametrize("n", [9, 17, 40, 200])
def test_an_entry_just_below_the_threshold(fe, dtype, n):
    """A step that counts it as active ends 1e-11 short of k: close, and not close enough."""
    for share, spread in ((0.8, 0.5), (0.5, 0.2), (0.2, 0.2)):
        x = np.random.default_rng(0).uniform(0, spread, size=(200, n))
        rest = x[:, 1:]
        k = share * (n - 1)
        x[:, 0] = (rest.sum(1) - k) / (n - 1) - 1e-11 * (1 + 1 / (n - 1))
        np.testing.assert_allclose(fe.soft_binary_argmax(x, k).sum(axis=1), k, rtol=1e-14)


def test_numpys_long_doubles_are_computed_in_float64():
    """By NumPy, the only front end that has them; float64 itself where the platform has no longer ones."""
    x = np.random.default_rng(0).normal(size=100)
    y = NUMPY.soft_binary_argmax(x.astype(np.longdouble), 30.5)
    assert y.dtype == np.longdouble
    np.testing.assert_array_equal(y.astype(np.float64), NUMPY.soft_binary_argmax(x, 30.5))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_half_gradients_are_summed_in_float32(dtype):
    """The mean over 65,536 active entries: a half-precision sum would stop at 2,048 or at 256."""
    n = 65_536
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=n).astype(dtype), (1 + rng.random(size=n)).astype(dtype)
    y = TORCH.soft_binary_argmax(x, n / 2, 100.0)
    expected, _, _ = reference.vjp(y, v, 100.0)
    got = gradient(to_torch(x), n / 2, to_torch(v), tau=100.0)
    np.testing.assert_allclose(got.float(), expected, rtol=0.01, atol=1e-5)
