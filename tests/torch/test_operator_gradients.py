"""Gradients to x, k and tau: against formulas, finite differences, in reverse, forward and second order.

With y = soft_binary_argmax(x, k, tau), A = {i : 0 < y_i < 1} and an incoming v:

    x:    (v_i - mean_A v)/tau on A, 0 elsewhere
    k:    mean_A v
    tau:  -(1/tau) sum_A v_i (y_i - mean_A y)

The Jacobian to x is symmetric: the first rule is the forward-mode one as well. All are linear in v, and A is
locally constant: the second derivatives are those of 1/tau and of y in the formula to tau.
"""

import contextlib

import pytest
import torch
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck

from hypersimplex.torch import backends, soft_binary_argmax, threshold

INF, NAN = float("inf"), float("nan")


def formulas(y, v, tau):
    """The gradients above for slices along the last dim, in the dtype of v."""
    active = ((y > 0) & (y < 1)).to(v.dtype)
    count = active.sum(-1, keepdim=True).clamp(min=1)
    mean_v = (v * active).sum(-1, keepdim=True) / count
    mean_y = (y * active).sum(-1, keepdim=True) / count
    tau = torch.as_tensor(tau, dtype=v.dtype).expand(y.shape[:-1]).unsqueeze(-1)
    to_x = active * (v - mean_v) / tau
    to_tau = -(active * v * (y - mean_y)).sum(-1) / tau.squeeze(-1)
    return to_x, mean_v.squeeze(-1), to_tau


@pytest.fixture(params=["kernel", "plain"], autouse=True)
def path(request):
    """Both ways of computing: the compiled kernel and plain torch."""
    with backends.plain_only() if request.param == "plain" else contextlib.nullcontext():
        yield request.param


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(9,), (4, 9), (2, 3, 40), (3, 2000)])
def test_reverse_mode_equals_the_formulas(shape, dtype):
    x, v = normal(*shape, dtype=dtype).requires_grad_(), normal(*shape, dtype=dtype, seed=1)
    k = torch.linspace(0.6, shape[-1] * 0.8, x[..., 0].numel(), dtype=dtype).reshape(shape[:-1])
    tau = torch.linspace(0.5, 2, x[..., 0].numel(), dtype=dtype).reshape(shape[:-1])
    k.requires_grad_(), tau.requires_grad_()
    y = soft_binary_argmax(x, k, tau)
    got = grad(y, (x, k, tau), v)
    expected = formulas(y.detach().double(), v.double(), tau.detach().double())
    for value, formula in zip(got, expected, strict=True):
        torch.testing.assert_close(value, formula.to(dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 9, 5), (2, 40, 33), (3, 2001, 2), (2, 300, 71)])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_slices_along_any_dim_of_three_have_numbers_of_their_own(shape, dim, dtype):
    x, v = normal(*shape, dtype=dtype).requires_grad_(), normal(*shape, dtype=dtype, seed=1)
    slices = torch.Size(size for d, size in enumerate(shape) if d != dim)
    part = torch.linspace(0, 1, slices.numel(), dtype=dtype).reshape(slices)
    k, tau = (shape[dim] * (0.2 + 0.5 * part)).requires_grad_(), (0.5 + 1.5 * part).requires_grad_()
    y = soft_binary_argmax(x, k, tau, dim=dim)
    to_x, *rest = grad(y, (x, k, tau), v)
    expected = formulas(*(t.detach().double().movedim(dim, -1) for t in (y, v)), tau.detach().double())
    for value, formula in zip((to_x.movedim(dim, -1), *rest), expected, strict=True):
        torch.testing.assert_close(value, formula.to(dtype), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrt", ["x", "k", "tau", "all"])
def test_forward_mode_equals_the_formulas(dtype, wrt):
    """J is symmetric in x; the tangents of k and tau spread as 1/|A| and -(y - mean_A y)/tau."""
    x, u = normal(3, 40, dtype=dtype), normal(3, 40, dtype=dtype, seed=1)
    k, tau = torch.tensor([0.6, 7.5, 30.2], dtype=dtype), torch.tensor([0.5, 1.0, 2.0], dtype=dtype)
    dk, dtau = torch.tensor([1.0, -2.0, 0.5], dtype=dtype), torch.tensor([0.3, 1.0, -1.0], dtype=dtype)
    moves = {name: wrt in (name, "all") for name in ("x", "k", "tau")}
    with forward_ad.dual_level():
        y, tangent = forward_ad.unpack_dual(
            soft_binary_argmax(
                forward_ad.make_dual(x, u) if moves["x"] else x,
                forward_ad.make_dual(k, dk) if moves["k"] else k,
                forward_ad.make_dual(tau, dtau) if moves["tau"] else tau,
            )
        )
    active = ((y > 0) & (y < 1)).to(dtype)
    count = active.sum(-1, keepdim=True)
    mean_y = (y * active).sum(-1, keepdim=True) / count
    expected = moves["x"] * formulas(y, u, tau)[0]
    expected = expected + moves["k"] * active / count * dk[:, None]
    expected = expected - moves["tau"] * active * (y - mean_y) * (dtau / tau)[:, None]
    torch.testing.assert_close(tangent, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("per_slice", [False, True])
def test_finite_differences_to_second_order(dim, per_slice):
    x = normal(5, 6).requires_grad_()
    slices = x.sum(dim).shape if per_slice else ()
    # Not whole, so that no slice is saturated, where the derivatives to k and tau have a kink.
    k = torch.linspace(0.7, 4.3, 6, dtype=torch.float64)[: max(slices, default=1)].reshape(slices)
    tau = torch.linspace(0.8, 1.9, 6, dtype=torch.float64)[: max(slices, default=1)].reshape(slices)
    inputs = (x, k.requires_grad_(), tau.requires_grad_())

    def function(x, k, tau):
        return soft_binary_argmax(x, k, tau, dim=dim)

    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True)


def test_second_order_to_tau_equals_the_formula():
    """to_x = J v / tau, so its derivative to tau along w is -(w . J v)/tau^2: not zero, and easily lost."""
    x, v, w = normal(9).requires_grad_(), normal(9, seed=1), normal(9, seed=2)
    tau = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    y = soft_binary_argmax(x, 3.5, tau)
    (to_x,) = grad(y, x, v, create_graph=True)
    (second,) = grad(to_x, tau, w)
    expected = -(w @ formulas(y.detach(), v, tau.detach())[0]) / tau.detach()
    assert expected.abs() > 0.01
    torch.testing.assert_close(second, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_have_the_dtype_of_their_tensor(dtype):
    x = normal(4, 50, dtype=dtype).requires_grad_()
    k = torch.full((4,), 5.5, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.5, dtype=torch.float32, requires_grad=True)
    y = soft_binary_argmax(x, k, tau)
    v = normal(4, 50, dtype=dtype, seed=1)
    to_x, to_k, to_tau = grad(y, (x, k, tau), v)
    assert (y.dtype, to_x.dtype, to_k.dtype, to_tau.dtype) == (dtype, dtype, torch.float64, torch.float32)
    expected = formulas(y.detach().double(), v.double(), 0.5)
    rtol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(to_x.double(), expected[0], rtol=rtol, atol=rtol)
    torch.testing.assert_close(to_k, expected[1], rtol=rtol, atol=rtol)
    # y is rounded before it is saved: each of the 50 entries adds a rounding, divided by tau.
    torch.testing.assert_close(to_tau.double(), expected[2].sum(), rtol=rtol, atol=100 * rtol)


@pytest.mark.parametrize("which", [("x",), ("k",), ("tau",), ("x", "k"), ("k", "tau")])
def test_each_gradient_alone(which):
    tensors = {"x": normal(4, 9), "k": torch.tensor(2.5), "tau": torch.tensor(0.5)}
    v = normal(4, 9, seed=1)
    for name in which:
        tensors[name].requires_grad_()
    y = soft_binary_argmax(*tensors.values())
    to_x, to_k, to_tau = formulas(y.detach(), v, 0.5)
    expected = {"x": to_x, "k": to_k.sum().float(), "tau": to_tau.sum().float()}
    for name, got in zip(which, grad(y, [tensors[name] for name in which], v), strict=True):
        torch.testing.assert_close(got, expected[name])


@pytest.mark.parametrize(
    ("x", "k"),
    [([3.0, 1.0, 2.0], 0.0), ([3.0, 1.0, 2.0], 3.0), ([9.0, 5.0, 0.0], 1.0), ([INF, 2.0, -INF], 1.0)],
)
def test_no_active_entry_means_no_gradient(x, k):
    x, k, tau = (torch.tensor(a, requires_grad=True) for a in (x, k, 1.0))
    got = grad(soft_binary_argmax(x, k, tau), (x, k, tau), torch.tensor([1.0, 2.0, 3.0]))
    for value in got:
        assert torch.equal(value, torch.zeros_like(value))


@pytest.mark.parametrize(
    ("x", "k"),
    [
        ([-INF, 0.5, 0.25, 0.0], 1.0),
        ([INF, 0.5, 0.25, 0.0], 2.0),
        ([INF, 0.5, -INF, 0.25], 1.5),
        ([INF, INF, 0.5, -INF], 1.0),  # tied at infinity: they share k, and its gradient
    ],
)
def test_infinities_follow_the_formulas(x, k):
    x, k, tau = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, k, 1.5))
    v = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    y = soft_binary_argmax(x, k, tau)
    for value, formula in zip(grad(y, (x, k, tau), v), formulas(y.detach(), v, 1.5), strict=True):
        torch.testing.assert_close(value, formula)


def test_a_nan_slice_has_nan_gradients_and_spoils_no_other():
    x = normal(3, 6)
    x[1, 2] = NAN
    k, v = torch.full((3,), 2.5, dtype=torch.float64), normal(3, 6, seed=1)
    tau = torch.ones(3, dtype=torch.float64)
    x, k, tau = (t.requires_grad_() for t in (x, k, tau))
    y = soft_binary_argmax(x, k, tau)
    expected = formulas(y.detach(), v, 1.0)
    for value, formula in zip(grad(y, (x, k, tau), v), expected, strict=True):
        assert value[1].isnan().all()
        torch.testing.assert_close(value[[0, 2]], formula[[0, 2]])


@pytest.mark.parametrize("n", [3, 20, 70, 150, 700, 3000])  # each length has its own way through the kernel
@pytest.mark.parametrize("learned_k", [False, True])
def test_a_nan_slice_of_any_length_has_nan_gradients(n, learned_k):
    x, v = normal(3, n), normal(3, n, seed=1)
    x[1, 2] = NAN
    k = torch.full((3,), n / 4, dtype=torch.float64, requires_grad=True)
    y = soft_binary_argmax(x.requires_grad_(), k if learned_k else n / 4)
    expected = formulas(y.detach(), v, 1.0)
    for value, formula in zip(grad(y, (x, k)[: 1 + learned_k], v), expected, strict=False):
        assert value[1].isnan().all()
        torch.testing.assert_close(value[[0, 2]], formula[[0, 2]])


@pytest.mark.parametrize("dim", [0, 1])
def test_an_incoming_gradient_of_any_strides(dim):
    x = normal(7, 20).requires_grad_()
    y = soft_binary_argmax(x, 2.5, dim=dim)
    weights = normal(20, 7, seed=1)
    for v in (
        weights.T,
        normal(7, 40, seed=1)[:, ::2],
        weights[:, 0].expand(7, 20),
        torch.ones(()).double().expand(7, 20),
    ):
        (got,) = grad(y, x, v, retain_graph=True)
        expected = formulas(y.detach().movedim(dim, -1), v.movedim(dim, -1), 1.0)[0].movedim(-1, dim)
        torch.testing.assert_close(got, expected)


def test_gradients_of_the_threshold():
    """mu = mean_A x - tau mean_A y, so its gradients are 1/|A| on A, -tau/|A| and -mean_A y."""
    x, v = normal(3, 9).requires_grad_(), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    k = torch.tensor([1.5, 4.0, 7.3], dtype=torch.float64, requires_grad=True)
    tau = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = soft_binary_argmax(x, k, tau).detach()
    active = ((y > 0) & (y < 1)).double()
    count = active.sum(-1)
    expected = (v / count)[:, None] * active, -v * tau.detach() / count, -v * (y * active).sum(-1) / count
    for got, formula in zip(grad(threshold(x, k, tau), (x, k, tau), v), expected, strict=True):
        torch.testing.assert_close(got, formula)
