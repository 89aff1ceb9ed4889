"""The C++ kernel behind the JAX front end: where it serves, and that it solves what jnp solves."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hypersimplex.jax as hsj
from hypersimplex import reference

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 9)).astype(np.float32)


def lowered(f, *args):
    return jax.jit(f).lower(*args).as_text()


def soft(x):
    return hsj.soft_binary_argmax(x, 3, 0.7)


def gradient(x):
    return jax.grad(lambda x: jnp.sum(soft(x) ** 2))(x)


@pytest.fixture
def afresh():
    """Nothing that was lowered before serves, and nothing that is lowered now stays."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def test_one_processor_calls_the_kernel_both_ways():
    text = lowered(gradient, X)
    assert "@hypersimplex_project" in text
    assert "@hypersimplex_centered" in text
    assert "while" not in text


def test_it_can_be_ruled_out(monkeypatch, afresh):
    with_kernel = soft(X), gradient(X)
    jax.clear_caches()
    monkeypatch.setenv("HYPERSIMPLEX_JAX_KERNEL", "0")
    assert "@hypersimplex" not in lowered(gradient, X)
    for got, want in zip((soft(X), gradient(X)), with_kernel, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)
    jax.clear_caches()
    monkeypatch.setenv("HYPERSIMPLEX_JAX_KERNEL", "no")
    with pytest.raises(ValueError, match=r"^HYPERSIMPLEX_JAX_KERNEL must be 0 or 1, got 'no'"):
        soft(X)


def test_a_jax_without_foreign_functions_does_without(monkeypatch, afresh):
    from hypersimplex.jax import _primitives

    monkeypatch.delattr(jax, "ffi")
    monkeypatch.setitem(sys.modules, "jax.ffi", None)
    _primitives.kernel_is_registered.cache_clear()
    try:
        np.testing.assert_allclose(soft(X), reference.soft_binary_argmax(X, 3, 0.7), atol=3e-7)
    finally:
        _primitives.kernel_is_registered.cache_clear()


def test_an_exported_program_runs_without_this_package():
    exported = jax.export.export(jax.jit(gradient))(X)
    assert "@hypersimplex" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(X), gradient(X), atol=1e-6)
    both = jax.export.export(jax.jit(soft), platforms=["cpu", "cuda"])(X)
    np.testing.assert_allclose(both.call(X), soft(X), atol=3e-7)


def test_without_jit():
    with jax.disable_jit():
        y = soft(X)
    np.testing.assert_allclose(y, soft(X), atol=3e-7)


def both_ways(x, k, tau, axis, monkeypatch):
    """y, mu and the gradients to x and tau, by the kernel and by jnp."""
    v = np.random.default_rng(1).normal(size=x.shape).astype(x.dtype)

    def run(x, k, tau):
        y, pull = jax.vjp(lambda x, tau: hsj.soft_binary_argmax(x, k, tau, axis=axis), x, tau)
        return y, hsj.threshold(x, k, tau, axis=axis), *pull(v)

    for way in ("1", "0"):
        jax.clear_caches()
        monkeypatch.setenv("HYPERSIMPLEX_JAX_KERNEL", way)
        yield [np.asarray(a) for a in jax.jit(run)(x, k, tau)]


HARD = RNG.normal(size=(12, 40))
HARD[1, ::3], HARD[2, :2], HARD[3], HARD[4, 5] = -np.inf, np.inf, 1.0, np.nan
HARD[5, :38], HARD[6, ::2] = -np.inf, np.round(HARD[6, ::2])
HARD_K = np.array([7.5, 17, 1, 10, 3, 3, 11, 0, 40, 41, -1, 5])
HARD_TAU = np.array([0.5, 0.1, 1, 2, 1, 1, 0.3, 1, 1, 1, 1, -1.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hard_slices_are_solved_alike(dtype, axis, monkeypatch, afresh):
    """-inf, +inf, ties, NaN, too many masked, k of 0 and n, k and tau out of range."""
    with jax.enable_x64(dtype == np.float64):
        x = np.moveaxis(HARD.reshape(4, 3, 40), 2, axis).astype(dtype)
        numbers = [a.reshape(4, 3).astype(dtype) for a in (HARD_K, HARD_TAU)]
        kernel, plain = both_ways(x, *numbers, axis, monkeypatch)
    broken = np.isnan(np.moveaxis(kernel[0], axis, 2)).all(2).reshape(-1)
    assert np.flatnonzero(broken).tolist() == [4, 5, 9, 10, 11]
    for got, want in zip(kernel, plain, strict=True):
        assert got.dtype == want.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize(("shape", "axis"), [((3, 65_535), 1), ((2, 65_536), 1), ((65_537,), 0), ((4099, 33), 0)])
def test_large_slices_are_solved_alike(shape, axis, monkeypatch, afresh):
    """On both sides of the size at which the kernel begins to use several threads, along and across memory."""
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    kernel, plain = both_ways(x, shape[axis] / 10, np.float32(0.5), axis, monkeypatch)
    for got, want in zip(kernel[:3], plain[:3], strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_allclose(kernel[3], plain[3], rtol=1e-4, atol=0.05)


def test_an_infinite_cotangent_of_an_inactive_entry_stays_there(each_way):
    y, pull = jax.vjp(lambda x: hsj.soft_binary_argmax(x, 1), jnp.array([0.25, 1.5, 1.0]))
    np.testing.assert_allclose(y, [0, 0.75, 0.25], atol=1e-7)
    assert pull(jnp.array([jnp.inf, 1.0, 0.0]))[0].tolist() == [0, 0.5, -0.5]


@pytest.mark.parametrize("k", [3, np.array(3.0), np.full(4, 3.0)])
def test_batches_of_nothing(k):
    assert jax.vmap(lambda x: hsj.soft_binary_argmax(x, k))(np.zeros((0, 4, 9), np.float32)).shape == (0, 4, 9)


def test_many_threads_call_at_once():
    """XLA may run several programs side by side; the kernel's threads serve one of them, the others do without."""
    from concurrent.futures import ThreadPoolExecutor

    x = RNG.normal(size=(8, 20_000)).astype(np.float32)
    f = jax.jit(lambda x: hsj.soft_binary_argmax(x, 2000))
    want = f(x)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: f(x), range(40)):
            np.testing.assert_allclose(got, want, atol=1e-6)
