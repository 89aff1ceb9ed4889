"""Gradients of every curve to x, k and tau: by formula, finite differences, forward and backward, up to the third.

With s the slope of S at each entry, W their sum, m = (sum s v)/W and t = (x - mu)/tau, the gradients of sum(v * y) are

    x:  s (v - m)/tau        k:  m        tau:  -(1/tau) sum s (v - m) t
"""

import contextlib

import pytest
import torch
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck

from hypersimplex._curves import CURVES
from hypersimplex.torch import SoftTopK, backends, soft_topk, soft_topk_segments, threshold

INF, NAN = float("inf"), float("nan")
SLOPES = {
    "ramp": lambda t: ((t > 0) & (t < 1)).to(t.dtype),
    "exp": lambda t: torch.where(t < 0, t.exp(), 0),
    "logistic": lambda t: torch.sigmoid(t) * torch.sigmoid(-t),
    "laplace": lambda t: torch.exp(-t.abs()) / 2,
}
every_curve = pytest.mark.parametrize("curve", CURVES)


@pytest.fixture(params=["kernel", "plain"], autouse=True)
def path(request):
    with backends.plain_only() if request.param == "plain" else contextlib.nullcontext():
        yield request.param


def problem(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, dtype=dtype, generator=generator)
    k = torch.linspace(1.3, shape[-1] * 0.7 + 0.1, x[..., 0].numel(), dtype=dtype).reshape(shape[:-1])
    tau = torch.linspace(0.5, 2, x[..., 0].numel(), dtype=dtype).reshape(shape[:-1])
    return [each.requires_grad_() for each in (x, k, tau)]


@every_curve
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_the_formula_s(curve, dtype):
    x, k, tau = problem(4, 30, dtype=dtype)
    v = torch.randn(4, 30, dtype=dtype, generator=torch.Generator().manual_seed(1))
    got = grad(soft_topk(x, k, tau, curve=curve), (x, k, tau), v)
    wide, width = x.detach().double(), tau.detach().double().unsqueeze(1)
    mu = threshold(wide, k.detach().double(), width.squeeze(1), curve=curve)
    t = (wide - mu.unsqueeze(1)) / width
    s = SLOPES[curve](t)
    m = (s * v).sum(1, keepdim=True) / s.sum(1, keepdim=True)
    expected = s * (v - m) / width, m.squeeze(1), -(s * (v - m) * t / width).sum(1)
    for value, formula in zip(got, expected, strict=True):
        assert formula.abs().max() > 1e-2
        torch.testing.assert_close(value, formula.to(dtype), rtol=1e-5, atol=1e-5)


@every_curve
def test_finite_differences_agree_in_every_mode(curve):
    given = problem(2, 5)

    def solved(x, k, tau):
        return soft_topk(x, k, tau, curve=curve)

    assert gradcheck(solved, given, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(solved, given)
    assert gradcheck(lambda *a: threshold(*a, curve=curve), given)
    assert gradgradcheck(lambda *a: threshold(*a, curve=curve), given)


@every_curve
def test_segments_have_the_same_derivatives(curve):
    x, _, _ = problem(9)
    k, tau = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in ([1.2, 2.4], [0.8, 1.3]))
    offsets = torch.tensor([0, 4, 9])

    def solved(x, k, tau):
        return soft_topk_segments(x, k, offsets, tau, curve=curve)

    assert gradcheck(solved, (x, k, tau))
    assert gradgradcheck(solved, (x, k, tau))


@every_curve
@pytest.mark.parametrize("argument", [0, 1, 2])
def test_the_third_derivative_is_the_slope_of_the_second(curve, argument):
    """By the formula, which has two Newton steps: with one the second is wrong, with constant slopes the third."""
    given = [each.detach()[0] for each in problem(1, 5)]

    def along(a):
        args = [
            each + a * (i == argument) * (torch.arange(5.0, dtype=torch.float64) if i == 0 else 1)
            for i, each in enumerate(given)
        ]
        return soft_topk(*args, curve=curve)[2]

    second = torch.func.grad(torch.func.grad(along))
    at, h = torch.tensor(0.05, dtype=torch.float64), 1e-4
    expected = (second(at + h) - second(at - h)) / (2 * h)
    torch.testing.assert_close(torch.func.grad(second)(at), expected, rtol=1e-5, atol=1e-6)


@every_curve
def test_transforms_see_the_same_function(curve):
    x, k, tau = (each.detach() for each in problem(3, 8))

    def solved(x, k, tau):
        return soft_topk(x, k, tau, curve=curve)

    expected = solved(x, k, tau)
    torch.testing.assert_close(torch.func.vmap(solved)(x, k, tau), expected)
    jacobians = [mode(solved)(x[0], k[0], tau[0]) for mode in (torch.func.jacrev, torch.func.jacfwd)]
    torch.testing.assert_close(jacobians[0], jacobians[1])
    with forward_ad.dual_level():
        y = solved(forward_ad.make_dual(x[0], torch.ones_like(x[0])), k[0], tau[0])
        # A constant added to all entries changes nothing.
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, torch.zeros_like(x[0]))
    module = SoftTopK(2.5, 0.5, curve=curve)
    torch.testing.assert_close(module(x), soft_topk(x, 2.5, 0.5, curve=curve))
    torch.testing.assert_close(torch.export.export(module, (x,)).module()(x), module(x))
    torch.testing.assert_close(torch.fx.symbolic_trace(module)(x), module(x))
    assert f"curve={curve!r}" in repr(module)


@pytest.mark.parametrize("curve", CURVES[1:])
def test_compiled_it_is_the_same(curve):
    x = problem(3, 8)[0]
    compiled = torch.compile(lambda x: soft_topk(x, 2.5, 0.7, curve=curve), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), soft_topk(x, 2.5, 0.7, curve=curve))
    v = torch.arange(8.0, dtype=x.dtype).expand(3, 8)
    plain, traced = (grad(f(x), x, v)[0] for f in (lambda x: soft_topk(x, 2.5, 0.7, curve=curve), compiled))
    torch.testing.assert_close(traced, plain)


@every_curve
def test_where_nothing_has_a_slope_gradients_are_zero_and_a_nan_spoils_its_own_slice(curve):
    x = torch.tensor([[1.0, 2.0, 3.0], [NAN, 1.0, 2.0], [INF, -INF, 0.0], [0.0, 1.0, 1.5]], dtype=torch.float64)
    x.requires_grad_()
    k = torch.tensor([0.0, 1.5, 1.0, 1.4], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64).expand(4, 3)
    for formula in (False, True):
        call = torch.func.vmap(lambda x, k: soft_topk(x, k, curve=curve)) if formula else None
        y = call(x, k) if formula else soft_topk(x, k, curve=curve)
        to_x, to_k = grad(y, (x, k), v)
        torch.testing.assert_close(to_x[[0, 2]], torch.zeros(2, 3, dtype=x.dtype))
        torch.testing.assert_close(to_k[[0, 2]], torch.zeros(2, dtype=x.dtype))
        assert to_x[1].isnan().all()
        assert to_x[3].abs().max() > 0.1
        assert bool(to_x[3].isfinite().all())


@every_curve
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_hard_choices_and_half_precision_have_the_soft_gradient(curve, dtype):
    x = torch.tensor([0.1, 0.75, 0.5, -0.25], dtype=dtype, requires_grad=True)
    v = torch.tensor([1.0, -1.0, 2.0, 0.5], dtype=dtype)
    y = soft_topk(x, 2, curve=curve, hard=True)
    assert y.tolist() == [0, 1, 1, 0]
    (found,) = grad(y, x, v)
    wide = x.detach().float().requires_grad_()
    (expected,) = grad(soft_topk(wide, 2, curve=curve), wide, v.float())
    torch.testing.assert_close(found, expected.to(dtype), rtol=2e-2, atol=2e-2)
