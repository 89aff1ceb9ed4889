"""Derivatives to x, k and tau against the formulas, in both modes and to the second order.

With A = {0 < y < 1}, for an incoming v:

    to x:    (v - mean_A v)/tau on A, 0 elsewhere
    to k:    mean_A v
    to tau:  -(1/tau) sum_A v (y - mean_A y)
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex.jax as hsj
from hypersimplex import reference

pytestmark = pytest.mark.usefixtures("each_way")

N = 12


def problem(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), 3.3, 0.8, rng.normal(size=n)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(4))
def test_gradients_equal_the_formulas(seed):
    x, k, tau, v = problem(seed)
    _, pull = jax.vjp(hsj.soft_binary_argmax, x, k, tau)
    to_x, to_k, to_tau = pull(jnp.asarray(v))
    expected = reference.vjp(reference.soft_binary_argmax(x, k, tau), v, tau)
    for got, want in zip((to_x, to_k, to_tau), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_gradients_equal_finite_differences():
    x, k, tau, v = problem()

    def f(x, k, tau):
        return float(np.dot(v, reference.soft_binary_argmax(x, k, tau)))

    got = jax.grad(lambda *args: jnp.dot(v, hsj.soft_binary_argmax(*args)), argnums=(0, 1, 2))(x, k, tau)
    h = 1e-6
    for i in range(N):
        e = h * np.eye(N)[i]
        assert float(got[0][i]) == pytest.approx((f(x + e, k, tau) - f(x - e, k, tau)) / (2 * h), abs=1e-7)
    assert float(got[1]) == pytest.approx((f(x, k + h, tau) - f(x, k - h, tau)) / (2 * h), abs=1e-7)
    assert float(got[2]) == pytest.approx((f(x, k, tau + h) - f(x, k, tau - h)) / (2 * h), abs=1e-7)


@pytest.mark.usefixtures("x64")
def test_forward_and_reverse_mode_agree():
    x, k, tau, _ = problem()
    for argument in range(3):
        forward = jax.jacfwd(hsj.soft_binary_argmax, argument)(jnp.asarray(x), k, tau)
        reverse = jax.jacrev(hsj.soft_binary_argmax, argument)(jnp.asarray(x), k, tau)
        assert np.abs(forward).max() > 0.01
        np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-13)


@pytest.mark.usefixtures("x64")
def test_the_threshold_moves_as_its_formula_says():
    """mu = mean_A x - tau (k - ones)/|A|, with A and the ones held fixed."""
    x, k, tau, _ = problem()
    y = reference.soft_binary_argmax(x, k, tau)
    active = (y > 0) & (y < 1)
    size, left = active.sum(), k - np.sum(y == 1)
    to_x, to_k, to_tau = jax.grad(hsj.threshold, argnums=(0, 1, 2))(x, k, tau)
    np.testing.assert_allclose(to_x, active / size, rtol=0, atol=1e-13)
    assert float(to_k) == pytest.approx(-tau / size, abs=1e-13)
    assert float(to_tau) == pytest.approx(-left / size, abs=1e-13)


@pytest.mark.usefixtures("x64")
def test_second_order():
    """Of y = (x - mean_A x)/tau + (k - ones)/|A| on A: to x and tau twice, everything else is zero."""
    x, k, tau, v = problem()
    y = reference.soft_binary_argmax(x, k, tau)
    active = (y > 0) & (y < 1)
    centred = np.where(active, x - x[active].mean(), 0)
    hessian = jax.hessian(lambda *args: jnp.dot(v, hsj.soft_binary_argmax(*args)), argnums=(0, 1, 2))(x, k, tau)
    np.testing.assert_allclose(hessian[0][0], np.zeros((N, N)), atol=1e-12)
    mixed = -np.where(active, v - v[active].mean(), 0) / tau**2
    np.testing.assert_allclose(hessian[0][2], mixed, rtol=0, atol=1e-12)
    np.testing.assert_allclose(hessian[2][0], mixed, rtol=0, atol=1e-12)
    assert float(hessian[2][2]) == pytest.approx(2 * np.dot(v, centred) / tau**3, abs=1e-12)
    for i, j in ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1)):
        np.testing.assert_allclose(hessian[i][j], 0, atol=1e-12)


def test_equal_saturated_entries_get_no_gradient():
    x = jnp.array([5, 5, 1, 0.9, 0.5, -7, -7, -7])
    got = jax.grad(lambda x: jnp.dot(hsj.soft_binary_argmax(x, 3), jnp.arange(1.0, 9)))(x)
    np.testing.assert_allclose(got, [0, 0, -1, 0, 1, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("k", [0.0, 3.0])
def test_no_active_entry_means_no_gradient(k):
    def f(x, k, tau):
        return jnp.dot(hsj.soft_binary_argmax(x, k, tau), jnp.arange(3.0)) + hsj.threshold(x, k, tau)

    for x in (jnp.array([3.0, 1.0, 2.0]), jnp.array([9.0, 1.0, 5.0])):
        for got in jax.grad(f, argnums=(0, 1, 2))(x, k, 1.0):
            np.testing.assert_array_equal(got, np.zeros(np.shape(got)))


def test_masks_and_nans_in_the_gradient():
    inf = jnp.inf
    x, v = jnp.array([[0.3, -inf, 0.2, inf], [0.1, jnp.nan, 1.0, 2.0]]), jnp.array([1.0, 2.0, 5.0, 3.0])
    got = jax.grad(lambda x: jnp.sum(v * hsj.soft_binary_argmax(x, 2)))(x)
    np.testing.assert_allclose(got[0], [-2, 0, 2, 0], atol=1e-6)
    assert np.isnan(got[1]).all()


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_gradients_are_summed_in_float32(dtype):
    n = 65_536
    rng = np.random.default_rng(0)
    x, v = jnp.asarray(rng.normal(size=n), dtype), jnp.asarray(1 + rng.random(size=n), dtype)
    y, pull = jax.vjp(lambda x: hsj.soft_binary_argmax(x, n / 2, 100.0), x)
    (got,) = pull(v)
    assert got.dtype == dtype
    expected, _, _ = reference.vjp(y, v, 100.0)
    np.testing.assert_allclose(got.astype(jnp.float32), expected, rtol=0.01, atol=1e-5)
