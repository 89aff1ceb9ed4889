"""The front end over the kernels, as for a CUDA tensor: values and gradients are those of plain torch operations."""

import numpy as np
import pytest
import torch

from hypersimplex.torch import _own_loss, _projection, hypersimplex_loss, soft_binary_argmax
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends import triton as backend


def numbers(*shape):
    return torch.from_numpy(np.random.default_rng(7).normal(size=shape).astype(np.float32))


@pytest.fixture
def agrees(device, monkeypatch):
    """Compare a function of tensors, and its gradient to each: by the kernels, and by plain torch operations."""

    def compare(function, *leaves):
        found = []
        for pick in (backend, plain):
            for module in (_own_loss, _projection):
                monkeypatch.setattr(module, "pick", lambda x, curve="ramp", pick=pick: pick)
            inputs = [leaf.to(device).clone().requires_grad_() for leaf in leaves]
            value = function(*inputs)
            weights = torch.linspace(0.5, 1.5, value.numel(), device=device).reshape(value.shape)
            found.append([value.detach(), *torch.autograd.grad((value * weights).sum(), inputs)])
        for got, want in zip(*found, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)

    return compare


def test_a_number_for_k_and_for_tau(agrees):
    agrees(lambda x: soft_binary_argmax(x, 3.0, 0.7), numbers(5, 19))


def test_a_tensor_k_with_and_without_a_gradient(agrees):
    k = torch.linspace(0.5, 6.0, 5, dtype=torch.float64)
    agrees(lambda x, k: soft_binary_argmax(x, k), numbers(5, 19), k)
    agrees(lambda x: soft_binary_argmax(x, k.to(x.device)), numbers(5, 19))


def test_a_learned_tau(agrees):
    agrees(lambda x, tau: soft_binary_argmax(x, 4.0, tau, 0), numbers(19, 5), torch.tensor(0.6, dtype=torch.float64))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("given", [{}, {"reduction": "none"}, {"label_smoothing": 0.1}], ids=str)
def test_the_loss(agrees, given, dense):
    labels = torch.arange(23) * 7 % 4
    target = torch.nn.functional.one_hot(labels, 4).float() * 0.9 if dense else labels
    agrees(lambda x: hypersimplex_loss(x, target.to(x.device), **given), numbers(23, 4))


def test_a_learned_tau_of_the_loss(agrees):
    labels = torch.arange(23) * 7 % 4
    tau = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    agrees(lambda x, tau: hypersimplex_loss(x, labels.to(x.device), tau=tau), numbers(23, 4), tau)


def test_other_curves_than_the_ramp_are_handed_over():
    seen = []
    own = backend._of_the_ramp(lambda *_, **__: "kernels", lambda *args, **options: seen.append((args, options)))
    assert own(1, want_mu=False) == own(1, curve="ramp") == "kernels"
    own(1, curve="exp", want_mu=False)
    assert seen == [((1,), {"curve": "exp", "want_mu": False})]
