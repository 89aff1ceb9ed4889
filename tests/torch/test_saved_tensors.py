"""What is saved for backward: changes of it are noticed, and it may come back another way."""

import pytest
import torch
from torch import Tensor

from hypersimplex.torch import hypersimplex_loss, soft_binary_argmax
from tests.torch.boundaries import gradient

SIZES = [(64, 128), (6, 5)]


def test_in_place_changes_between_two_backward_passes_are_noticed():
    for name in ("weight", "k", "prior", "tau"):
        x, y = torch.randn(8, 4, requires_grad=True), torch.randint(4, (8,))
        value = torch.full((4,), 0.5)
        loss = hypersimplex_loss(x, y, **{name: value})
        loss.backward(retain_graph=True)
        value.mul_(0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_in_place_changes_are_noticed_by_second_order():
    x, y, tau = torch.randn(8, 4, requires_grad=True), torch.randint(4, (8,)), torch.full((4,), 0.5)
    loss = hypersimplex_loss(x, y, tau=tau)
    tau.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_in_place_changes_of_a_sliced_tau_are_noticed():
    x, tau = torch.randn(8, 4, requires_grad=True), torch.full((8,), 0.5, dtype=torch.float64)
    y = soft_binary_argmax(x, 2, tau)
    tau.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_changes_of_a_tau_that_was_converted_do_not_count():
    x, tau = torch.randn(8, 4, requires_grad=True), torch.full((8,), 0.5)
    y = soft_binary_argmax(x, 2, tau)
    tau.mul_(2)
    y.square().sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(soft_binary_argmax(x, 2, 0.5).square().sum(), x)[0])


UNPACK = {
    "a view of a wider array": lambda t: torch.cat([t, t + 9], -1)[..., : t.shape[-1]] if t.dim() else t,
    "transposed": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "half and back": lambda t: t.half().float() if t.is_floating_point() else t,
    "double": lambda t: t.double() if t.is_floating_point() else t,
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
}


@pytest.mark.parametrize("unpack", UNPACK)
@pytest.mark.parametrize("given", ["numbers", "tensors", "k alone"])
@pytest.mark.parametrize("shape", SIZES)
def test_saved_tensors_may_come_back_another_way(unpack, given, shape):
    n = shape[0]
    tau = (torch.arange(n) % 4 + 2) / 4
    args = {"numbers": (2, 1.5), "tensors": (torch.full((n,), 2.0), tau), "k alone": (torch.full((n,), 2.0), 1.5)}
    for x in (torch.randn(shape), torch.randn(shape[::-1]).t()):
        want = gradient(x, *args[given])
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), UNPACK[unpack]):
            got = gradient(x, *args[given])
        # Half moves no entry in or out of the active set here, and its rounding is nowhere in the gradient to x.
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 if unpack == "half and back" else 1e-6)


@pytest.mark.parametrize("tau", [1.5, torch.tensor(1.5)])
def test_saved_tensors_of_another_shape_are_refused(tau):
    x = torch.randn(64, 128, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.new_zeros(999, 9999) if t.dim() > 1 else t):
        y = soft_binary_argmax(x, 3, tau)
    with pytest.raises(ValueError, match=r"of shape \(64, 128\) as it was packed, got shape \(999, 9999\)"):
        y.backward(torch.ones(64, 128))


@pytest.mark.parametrize("unpack", UNPACK)
@pytest.mark.parametrize("dense", [False, True])
def test_the_loss_may_get_its_tensors_back_another_way(unpack, dense):
    x = torch.randn(64, 12)
    y = torch.rand(64, 12) if dense else torch.randint(12, (64,))
    weight, tau = torch.arange(1.0, 13) / 4, torch.full((12,), 1.5)

    def gradients() -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        loss = hypersimplex_loss(leaf, y, weight, tau=tau, reduction="sum")
        return tuple(torch.autograd.grad(loss, leaf, retain_graph=again)[0] for again in (True, False))  # type: ignore

    want = gradients()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), UNPACK[unpack]):
        got = gradients()
    loose = {"rtol": 0.0, "atol": 0.05} if unpack == "half and back" else {}
    torch.testing.assert_close(got, want, **loose)
