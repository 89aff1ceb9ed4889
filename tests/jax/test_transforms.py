"""Under jit, vmap and scan the operator is the same; bad values that jit cannot see give NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex.jax as hsj
from hypersimplex import reference

pytestmark = pytest.mark.usefixtures("each_way")

X = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)


def expected(x, k, tau=1.0, axis=-1):
    return reference.soft_binary_argmax(x, k, tau, axis=axis)


def test_jit_with_traced_k_and_tau():
    f = jax.jit(hsj.soft_binary_argmax)
    for k, tau in ((2, 1.0), (3.5, 0.1), (0, 1.0), (9, 3.0)):
        np.testing.assert_allclose(f(X, k, tau), expected(X, k, tau), atol=3e-7)
    np.testing.assert_allclose(jax.jit(hsj.threshold)(X, 2, 0.5), reference.threshold(X, 2, 0.5), atol=3e-7)
    np.testing.assert_array_equal(jax.jit(hsj.binary_argmax)(X, 2), reference.binary_argmax(X, 2))


def test_vmap_over_x_k_and_tau():
    k, tau = np.array([1, 2.5, 0, 9], np.float32), np.array([0.1, 1, 2, 3], np.float32)
    whole = expected(X, k, tau)
    np.testing.assert_allclose(jax.vmap(hsj.soft_binary_argmax)(X, k, tau), whole, atol=3e-7)
    columns = jax.vmap(hsj.soft_binary_argmax, in_axes=(1, 0, 0), out_axes=1)(X.T, k, tau)
    np.testing.assert_allclose(columns, whole.T, atol=3e-7)
    only_k = jax.vmap(hsj.soft_binary_argmax, in_axes=(None, 0))(X[0], k)
    np.testing.assert_allclose(only_k, expected(np.stack([X[0]] * 4), k), atol=3e-7)
    twice = jax.vmap(jax.vmap(hsj.soft_binary_argmax, in_axes=(0, None)), in_axes=(None, 0))(X, k)
    np.testing.assert_allclose(twice[1], expected(X, 2.5), atol=3e-7)
    np.testing.assert_array_equal(jax.vmap(hsj.binary_argmax)(X, k.round()), reference.binary_argmax(X, k.round()))


def test_vmap_of_grad_is_grad_of_each():
    v = np.random.default_rng(1).normal(size=9).astype(np.float32)
    got = jax.jit(jax.vmap(jax.grad(lambda x: jnp.dot(v, hsj.soft_binary_argmax(x, 3, 0.7)))))(X)
    want, _, _ = reference.vjp(expected(X, 3, 0.7), np.broadcast_to(v, X.shape), 0.7)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_scan_and_its_gradient():
    """Three steps of gradient ascent written as a scan equal three written out."""

    def step(x, _):
        return x + hsj.soft_binary_argmax(x, 2.5, 1.5), None

    def scanned(x):
        return jnp.sum(jax.lax.scan(step, x, None, length=3)[0] ** 2)

    def unrolled(x):
        for _ in range(3):
            x, _ = step(x, None)
        return jnp.sum(x**2)

    for f in (lambda g: g, jax.grad):
        np.testing.assert_allclose(jax.jit(f(scanned))(X[0]), f(unrolled)(X[0]), rtol=1e-5)


def test_scan_over_rows():
    _, ys = jax.lax.scan(lambda c, x: (c, hsj.soft_binary_argmax(x, 2)), 0, X)
    np.testing.assert_allclose(ys, expected(X, 2), atol=3e-7)


@pytest.mark.parametrize(("k", "tau"), [(-1.0, 1.0), (9.5, 1.0), (np.nan, 1.0), (2.0, 0.0), (2.0, -1.0), (2.0, np.inf)])
def test_under_jit_bad_numbers_give_nan(k, tau):
    assert np.isnan(jax.jit(hsj.soft_binary_argmax)(X, k, tau)).all()
    assert np.isnan(jax.jit(hsj.threshold)(X, k, tau)).all()
    if tau == 1:
        assert np.isnan(jax.jit(hsj.binary_argmax)(X, k)).all()


def test_a_boolean_k_is_0_or_1():
    for f in (hsj.soft_binary_argmax, hsj.threshold, hsj.binary_argmax):
        np.testing.assert_array_equal(jax.jit(f)(X, True), f(X, True))
        np.testing.assert_array_equal(jax.jit(f)(X, True), f(X, 1))


def test_binary_argmax_never_chooses_a_masked_entry():
    x = np.array([[-np.inf, -np.inf, 1], [0, 1, -np.inf], [np.nan, -np.inf, -np.inf]], np.float32)
    message = "^k must be at most 1, the number of entries that are not -inf, got 2(;|$)"
    for f in (hsj.binary_argmax, reference.binary_argmax):
        with pytest.raises(ValueError, match=message):
            f(x, 2)
        np.testing.assert_array_equal(f(x[1:], 2), [[1, 1, 0], [np.nan] * 3])
    np.testing.assert_array_equal(jax.jit(hsj.binary_argmax)(x, 2), [[np.nan] * 3, [1, 1, 0], [np.nan] * 3])


def test_under_jit_too_many_masked_entries_give_a_nan_slice():
    x = X.copy()
    x[1, :7] = -np.inf
    y = np.asarray(jax.jit(hsj.soft_binary_argmax)(x, 3))
    assert np.isnan(y[1]).all()
    np.testing.assert_allclose(y[[0, 2, 3]], expected(X[[0, 2, 3]], 3), atol=3e-7)


def test_a_k_known_while_tracing_is_checked():
    with pytest.raises(ValueError, match=r"k must be between 0 and 9 \(the size of axis -1\), got 10"):
        jax.jit(lambda x: hsj.soft_binary_argmax(x, 10))(X)


def test_float32_with_x64_on(x64):
    y = hsj.soft_binary_argmax(X, 2.3, 0.7)
    assert y.dtype == jnp.float32
    np.testing.assert_allclose(y, expected(X, 2.3, 0.7), atol=3e-7)
    got = jax.grad(lambda k: hsj.soft_binary_argmax(X[0], k)[0])(jnp.float64(2.5))
    assert got.dtype == jnp.float64


def test_k_keeps_its_digits_in_float32():
    """One active entry holds all of k's fraction: 1234.56789 rounded to float32 would be off by 4e-5."""
    x = np.arange(2000, dtype=np.float32)[::-1]
    y = hsj.soft_binary_argmax(x, 1234.56789, 0.5)
    assert abs(float(y[1234]) - 0.56789) < 2e-7


def test_the_docstrings_tell_the_truth():
    import doctest

    from hypersimplex.jax import _loss, _operator, _thresholds

    for module in (_operator, _loss, _thresholds):
        result = doctest.testmod(module, extraglobs={"jax": jax, "jnp": jnp})
        assert result.attempted > 0
        assert result.failed == 0
