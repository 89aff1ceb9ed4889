"""soft_topk: the operator under its other name, and hard=True: exactly k ones, with the projection's gradient.

With y the projection, hard y has the value of binary_argmax and the derivatives of y, in every direction and mode.
"""

import contextlib

import numpy as np
import pytest
import torch

import hypersimplex as hs
import hypersimplex.torch as hst
from hypersimplex.torch import backends
from tests.frontends import every_front_end, every_front_end_and_dtype
from tests.operator.test_edges import refuses


def test_soft_topk_is_the_operator_under_another_name():
    assert hs.soft_topk is hs.soft_binary_argmax
    assert hst.soft_topk is hst.soft_binary_argmax


@every_front_end_and_dtype()
@pytest.mark.parametrize("axis", [0, -1])
def test_hard_gives_exactly_k_ones(fe, dtype, axis):
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(5, 7)), 1).astype(dtype)  # with ties
    x[0, 1], x[2, 3] = -np.inf, np.inf
    for k in (0, 2, 4, np.arange(x.shape[1 + axis]) % 5):
        y = fe.soft_binary_argmax(x, k, 0.3, axis=axis, hard=True)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, fe.binary_argmax(x, k, axis=axis))
        np.testing.assert_array_equal(np.asarray(y, float).sum(axis), k + np.zeros(x.shape[1 + axis]))


@every_front_end
def test_hard_refuses_what_soft_refuses_and_a_fraction(fe):
    x = np.array([1.0, 3.0, 2.0], np.float32)
    hard = {"hard": True}
    refuses(
        fe, ValueError, "k must be a whole number for exactly k ones, got 1.5", fe.soft_binary_argmax, x, 1.5, **hard
    )
    refuses(
        fe, ValueError, "k must be between 0 and 3 (the size of axis -1), got 4", fe.soft_binary_argmax, x, 4, **hard
    )
    refuses(fe, ValueError, "tau must be positive, got -1.0", fe.soft_binary_argmax, x, 1, -1.0, **hard)


@every_front_end
def test_a_nan_spoils_its_own_slice_only(fe):
    x = np.array([[1.0, np.nan], [1.0, 2.0]], np.float32)
    np.testing.assert_array_equal(fe.soft_binary_argmax(x, 1, hard=True), [[np.nan, np.nan], [0, 1]])


@pytest.mark.parametrize("plain", [False, True])
def test_derivatives_are_those_of_the_projection(plain):
    rng = np.random.default_rng(1)
    x, dx = (torch.tensor(rng.normal(size=(4, 9))) for _ in range(2))
    k, tau = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), torch.tensor(1.5, dtype=torch.float64)

    def loss(x, k, tau, hard):
        y = hst.soft_topk(x, k, tau, hard=hard)
        return (y * torch.arange(9.0)).sum()  # linear in y, so that the value of y does not matter

    with backends.plain_only() if plain else contextlib.nullcontext():
        soft, hard = (torch.func.grad(loss, (0, 1, 2))(x, k, tau, h) for h in (False, True))
        eager = [t.clone().requires_grad_() for t in (x, k, tau)]
        loss(*eager, True).backward()
        for a, b, c in zip(soft, hard, eager, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            torch.testing.assert_close(a, c.grad, rtol=1e-12, atol=1e-12)
            assert a.abs().max() > 0.1
        y, dy = torch.func.jvp(lambda x: hst.soft_topk(x, k, tau, hard=True), (x,), (dx,))
        torch.testing.assert_close(y, hst.binary_argmax(x, k), rtol=0, atol=0)
        torch.testing.assert_close(dy, torch.func.jvp(lambda x: hst.soft_topk(x, k, tau), (x,), (dx,))[1])


def test_hard_compiles_and_vmaps():
    x = torch.tensor(np.random.default_rng(2).normal(size=(4, 9)), requires_grad=True)
    compiled = torch.compile(lambda x: hst.soft_topk(x, 2, 0.5, hard=True), fullgraph=True)
    for f in (compiled, torch.func.vmap(lambda x: hst.soft_topk(x, 2, 0.5, hard=True))):
        y = f(x)
        torch.testing.assert_close(y, hst.binary_argmax(x, 2), rtol=0, atol=0)
        (got,) = torch.autograd.grad((y * torch.arange(9.0)).sum(), x)
        (wanted,) = torch.autograd.grad((hst.soft_topk(x, 2, 0.5) * torch.arange(9.0)).sum(), x)
        torch.testing.assert_close(got, wanted)


def test_jax_derivatives_are_those_of_the_projection():
    jax = pytest.importorskip("jax", reason="JAX is in an environment of its own")
    import hypersimplex.jax as hsj

    x = np.random.default_rng(3).normal(size=(4, 9)).astype(np.float32)

    def loss(x, k, tau, hard):
        return (hsj.soft_topk(x, k, tau, hard=hard) * np.arange(9)).sum()

    assert hsj.soft_topk is hsj.soft_binary_argmax
    with pytest.raises(ValueError, match="hard must be False"):
        hsj.soft_topk(x, 2, hard=True, axis_name="i")
    arguments = (x, np.float32(2), np.float32(0.5))
    for run in (lambda f: f, jax.jit):
        soft, hard = (run(jax.grad(lambda *a, h=h: loss(*a, h), (0, 1, 2)))(*arguments) for h in (False, True))
        for a, b in zip(soft, hard, strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.abs(a).max() > 0.1
    y = jax.jit(jax.vmap(lambda x: hsj.soft_topk(x, 2, 0.5, hard=True)))(x)
    np.testing.assert_array_equal(y, hs.binary_argmax(x, 2))
