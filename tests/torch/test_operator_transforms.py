"""torch.compile and torch.func: each result is compared with the formula.

A transform that loses the gradient gives zeros, not an error, so every expected value here is checked to be
something else.
"""

import contextlib

import pytest
import torch
from torch import func

from hypersimplex.torch import backends, binary_argmax, soft_binary_argmax, threshold

DOUBLE = torch.float64


@pytest.fixture(params=["kernel", "plain"])
def path(request):
    with backends.plain_only() if request.param == "plain" else contextlib.nullcontext():
        yield request.param


def normal(*shape, dtype=DOUBLE, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def jacobian(y, tau):
    """dy/dx for one slice: (I - 11'/|A|)/tau on A."""
    active = ((y > 0) & (y < 1)).to(y.dtype)
    return (torch.diag(active) - torch.outer(active, active) / active.sum()) / tau


def same(got, expected, **kwargs):
    assert expected.abs().max() > 1e-3, "an expected zero proves nothing"
    torch.testing.assert_close(got, expected, **kwargs)


def eager(x, k, tau, v):
    """y and its gradients without any transform; test_operator_gradients proves these."""
    inputs = [t.detach().clone().requires_grad_() for t in (x, k, tau)]
    y = soft_binary_argmax(*inputs)
    return (y.detach(), *torch.autograd.grad(y, inputs, v))


def case(rows=4, n=30, dtype=DOUBLE):
    x, v = normal(rows, n, dtype=dtype), normal(rows, n, dtype=dtype, seed=1)
    return x, torch.linspace(1.5, n / 2, rows, dtype=dtype), torch.linspace(0.5, 2, rows, dtype=dtype), v


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_dynamo", "path")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_gives_values_and_gradients(dynamic):
    compiled = torch.compile(soft_binary_argmax, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows, n in ((4, 30), (3, 17), (5, 64)):
        x, k, tau, v = case(rows, n)
        inputs = [t.clone().requires_grad_() for t in (x, k, tau)]
        y = compiled(*inputs)
        for got, expected in zip((y, *torch.autograd.grad(y, inputs, v)), eager(x, k, tau, v), strict=True):
            same(got, expected)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_with_inductor(dynamic):
    """In the middle of a model, so that there is something to fuse with on both sides."""

    def model(x):
        return (soft_binary_argmax(x.tanh() + 1, 7.5, 0.7) * 2).sin()

    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for n in (30, 41):
        x, v = normal(4, n, dtype=torch.float32), normal(4, n, dtype=torch.float32, seed=1)
        expected, got = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, z = model(expected), compiled(got)
        same(z, y)
        same(torch.autograd.grad(z, got, v)[0], torch.autograd.grad(y, expected, v)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fresh_dynamo")
def test_compile_other_functions_and_dims():
    def function(x):
        return soft_binary_argmax(x, 2, dim=0), threshold(x, 2, 0.5, dim=1), binary_argmax(x, 2, dim=0)

    x = normal(6, 5)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for got, expected in zip(compiled(x), function(x), strict=True):
        same(got, expected)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, DOUBLE])
def test_a_transform_does_not_change_a_digit(dtype):
    x = normal(4, 1000, dtype=dtype) * 10
    k = torch.tensor([0.3, 70.1, 500.7, 999.0], dtype=DOUBLE)
    tau = torch.tensor([1e-2, 0.7, 30.0, 1e-3], dtype=DOUBLE)
    expected = soft_binary_argmax(x, k, tau)
    compiled = torch.compile(soft_binary_argmax, fullgraph=True, backend="aot_eager")
    ways = {
        "compile": compiled(x, k, tau),
        "vmap": func.vmap(soft_binary_argmax)(x, k, tau),
        "jvp": func.jvp(lambda x: soft_binary_argmax(x, k, tau), (x,), (x,))[0],
        "vjp": func.vjp(lambda x: soft_binary_argmax(x, k, tau), x)[0],
    }
    for name, got in ways.items():
        assert torch.equal(got, expected), name


@pytest.mark.usefixtures("fresh_dynamo")
def test_compile_of_a_jvp():
    x, k, tau, u = case()

    def tangent(x, u):
        return func.jvp(lambda x: soft_binary_argmax(x, k, tau), (x,), (u,))[1]

    expected = torch.stack([jacobian(*row) @ d for *row, d in zip(soft_binary_argmax(x, k, tau), tau, u)])  # noqa: B905
    same(torch.compile(tangent, fullgraph=True, backend="aot_eager")(x, u), expected)


@pytest.mark.usefixtures("path")
def test_infinities_that_share_k_are_seen_by_a_transform():
    x = torch.tensor([[torch.inf, torch.inf, 1.0], [-torch.inf, 1.0, 1.5]], dtype=DOUBLE)
    expected = soft_binary_argmax(x, 1.0)
    assert torch.equal(expected, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]], dtype=DOUBLE))
    assert torch.equal(func.vmap(lambda row: soft_binary_argmax(row, 1.0))(x), expected)
    gradient = func.grad(lambda x: soft_binary_argmax(x, 1.0)[1, 2])(x)
    assert torch.equal(gradient, torch.tensor([[0.0, 0.0, 0.0], [0.0, -0.5, 0.5]], dtype=DOUBLE))


def test_vmap_over_each_argument():
    x, k, tau, _ = case()
    expected = soft_binary_argmax(x, k, tau)
    same(func.vmap(soft_binary_argmax)(x, k, tau), expected)
    same(func.vmap(soft_binary_argmax, in_dims=(1, 0, 0))(x.T, k, tau), expected)
    one = x[0].contiguous()
    over_k = torch.stack([soft_binary_argmax(one, each, 0.5) for each in k])
    same(func.vmap(lambda k: soft_binary_argmax(one, k, 0.5))(k), over_k)
    over_tau = torch.stack([soft_binary_argmax(one, 2.5, each) for each in tau])
    same(func.vmap(lambda tau: soft_binary_argmax(one, 2.5, tau))(tau), over_tau)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_vmap_of_slices_along_any_dim(dim):
    x = normal(3, 4, 5)
    for in_dim in range(3):
        rows = x.movedim(in_dim, 0)
        for function in (soft_binary_argmax, threshold, binary_argmax):
            expected = torch.stack([function(row, 2, dim=dim) for row in rows])
            same(func.vmap(lambda row: function(row, 2, dim=dim), in_dims=in_dim)(x), expected)  # noqa: B023


@pytest.mark.usefixtures("path")
def test_nested_vmap():
    x = normal(3, 4, 5)
    same(func.vmap(func.vmap(lambda row: soft_binary_argmax(row, 2.5)))(x), soft_binary_argmax(x, 2.5))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("jacobian_of", [func.jacrev, func.jacfwd])
def test_jacobians(jacobian_of):
    x, k, tau, _ = case()
    for row, k_row, tau_row in zip(x, k, tau, strict=True):
        y = soft_binary_argmax(row, k_row, tau_row)
        to_x, to_k, to_tau = jacobian_of(soft_binary_argmax, argnums=(0, 1, 2))(row, k_row, tau_row)
        active = ((y > 0) & (y < 1)).to(DOUBLE)
        same(to_x, jacobian(y, tau_row))
        same(to_k, active / active.sum())
        same(to_tau, -active * (y - (y * active).sum() / active.sum()) / tau_row)


@pytest.mark.usefixtures("path")
def test_jvp_and_vjp():
    x, k, tau, v = case()
    y = soft_binary_argmax(x, k, tau)
    expected = torch.stack([jacobian(*row) @ d for *row, d in zip(y, tau, v, strict=True)])
    same(func.jvp(lambda x: soft_binary_argmax(x, k, tau), (x,), (v,))[1], expected)
    same(func.vjp(lambda x: soft_binary_argmax(x, k, tau), x)[1](v)[0], expected)


@pytest.mark.usefixtures("path")
def test_vmap_of_grad():
    x, k, tau, v = case()
    per_row = func.vmap(func.grad(lambda x, k, tau, v: soft_binary_argmax(x, k, tau) @ v, argnums=(0, 1, 2)))
    for got, expected in zip(per_row(x, k, tau, v), eager(x, k, tau, v)[1:], strict=True):
        same(got, expected)


@pytest.mark.usefixtures("path")
def test_hessian():
    """f = |y - t|^2/2 has the gradient J(y - t), and J is locally constant: the Hessian is J J."""
    x, target = normal(12), normal(12, seed=1)
    y = soft_binary_argmax(x, 3.5, 0.7)
    hessian = func.hessian(lambda x: (soft_binary_argmax(x, 3.5, 0.7) - target).square().sum() / 2)(x)
    same(hessian, jacobian(y, 0.7) @ jacobian(y, 0.7))


@pytest.mark.usefixtures("path")
def test_hessian_to_tau():
    """y = mean_A y + (x - mean_A x)/tau on A, so d2y/dtau2 = 2 (x - mean_A x)/tau^3."""
    x, v = normal(12), normal(12, seed=1)
    tau = torch.tensor(0.7, dtype=DOUBLE)
    y = soft_binary_argmax(x, 3.5, tau)
    active = (y > 0) & (y < 1)
    expected = 2 * (v[active] @ (x[active] - x[active].mean())) / tau**3
    same(func.hessian(lambda tau: soft_binary_argmax(x, 3.5, tau) @ v)(tau), expected)


def test_a_nan_spoils_the_gradients_of_its_whole_slice_and_of_no_other():
    x, v = normal(3, 4), normal(3, 4, seed=1)
    x[1, 2] = torch.nan
    k = torch.tensor([1.5, 2.0, 2.5], dtype=x.dtype)
    leaves = x.clone().requires_grad_(), k.clone().requires_grad_()
    wanted = torch.autograd.grad(soft_binary_argmax(*leaves), leaves, v)
    assert wanted[0].isnan().all(1).tolist() == [False, True, False]
    got = torch.func.grad(lambda x, k: (soft_binary_argmax(x, k) * v).sum(), argnums=(0, 1))(x, k)
    again = torch.autograd.grad(soft_binary_argmax(*leaves), leaves, v, create_graph=True)
    for a, b, c in zip(got, again, wanted, strict=True):
        torch.testing.assert_close(a, c, equal_nan=True)
        torch.testing.assert_close(b.detach(), c, equal_nan=True)
