"""Gradients by finite differences, to every argument, to the second order, and asked for in unusual ways."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from tests.torch.losses import DOUBLE, every_path, formula, labels_of, normal, one_hot, same, using

LABELS = labels_of(12, classes=3)


def leaf(*values):
    return torch.tensor(values, dtype=DOUBLE, requires_grad=True)


@every_path
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("target", [LABELS, one_hot(LABELS, 3) * 0.8 + 0.05], ids=["indices", "soft"])
def test_finite_differences_to_the_logits(path, reduction, target):
    x = normal(12, 3).requires_grad_()
    with using(path):
        assert gradcheck(lambda x: hypersimplex_loss(x, target, reduction=reduction, tau=1.7), x)
        assert gradgradcheck(lambda x: hypersimplex_loss(x, target, reduction=reduction, tau=1.7), x)


@every_path
@pytest.mark.parametrize("name", ["weight", "k", "prior", "tau"])
def test_finite_differences_to_one_argument_beside_the_logits(path, name):
    """Each by itself makes the loss leave the way on which only the logits have a gradient."""
    x = normal(12, 3).requires_grad_()
    values = {"weight": (1.0, 0.5, 2.0), "k": (3.1, 4.2, 5.3), "prior": (0.2, 0.3, 0.45), "tau": (0.8, 1.5, 3.0)}
    with using(path):
        assert gradcheck(lambda x, v: hypersimplex_loss(x, LABELS, **{name: v}), (x, leaf(*values[name])))


@every_path
def test_finite_differences_to_every_argument(path):
    x, tau, k, weight = normal(12, 3).requires_grad_(), leaf(0.8, 1.5, 3.0), leaf(3.1, 4.2, 5.3), leaf(1.0, 0.5, 2.0)
    dense = (one_hot(LABELS, 3) * 0.8 + 0.05).requires_grad_()

    def with_k(x, tau, k, weight):
        return hypersimplex_loss(x, LABELS, weight, k=k, tau=tau)

    def with_target(x, dense, tau):
        return hypersimplex_loss(x, dense, tau=tau)

    prior = leaf(0.2, 0.3, 0.45)
    with using(path):
        for function in (gradcheck, gradgradcheck):
            assert function(with_k, (x, tau, k, weight))
            assert function(with_target, (x, dense, tau))
            assert function(lambda prior: hypersimplex_loss(x.detach(), LABELS, prior=prior), prior)
            assert function(lambda tau: hypersimplex_loss(x.detach(), LABELS, tau=tau), leaf(0.8).squeeze())


@every_path
def test_forward_mode(path):
    x, u = normal(12, 3), normal(12, 3, seed=2)
    grad = formula(x, one_hot(LABELS, 3))[1] / 12
    with using(path), forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(hypersimplex_loss(forward_ad.make_dual(x, u), LABELS)).tangent
    same(tangent, (grad * u).sum())


def test_a_second_backward_gives_the_same_and_a_third_is_refused():
    x = normal(12, 3).requires_grad_()
    loss = hypersimplex_loss(x, LABELS)
    expected = formula(x, one_hot(LABELS, 3))[1] / 12
    (first,) = torch.autograd.grad(3 * loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    same(first, 3 * expected)
    same(second, expected)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, x)


def test_gradients_add_up_in_the_leaf():
    x = normal(12, 3).requires_grad_()
    expected = formula(x, one_hot(LABELS, 3))[1] / 12
    (hypersimplex_loss(x, LABELS) + 2 * hypersimplex_loss(x, LABELS)).backward()
    hypersimplex_loss(x, LABELS).backward()
    same(x.grad, 4 * expected)


def test_several_incoming_gradients_at_once():
    x = normal(12, 3).requires_grad_()
    v = torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE)
    (grads,) = torch.autograd.grad(hypersimplex_loss(x, LABELS), x, v, is_grads_batched=True)
    same(grads, v[:, None, None] * formula(x, one_hot(LABELS, 3))[1] / 12)


def test_logits_changed_before_backward_are_noticed():
    x = normal(12, 3).requires_grad_()
    y = x * 1
    loss = hypersimplex_loss(y, LABELS)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("kind", [torch.nn.Parameter, lambda x: x.requires_grad_()])
def test_a_parameter_may_be_the_logits(kind):
    x = kind(normal(12, 3))
    hypersimplex_loss(x, LABELS).backward()
    same(x.grad, formula(x, one_hot(LABELS, 3))[1] / 12)


def test_without_gradient():
    x = normal(12, 3).requires_grad_()
    expected = formula(x, one_hot(LABELS, 3))[0].mean()
    with torch.no_grad():
        loss = hypersimplex_loss(x, LABELS)
    assert not loss.requires_grad
    same(loss, expected)
    with torch.inference_mode():
        same(hypersimplex_loss(x.detach(), LABELS), expected)


def test_tau_is_learned_by_the_module():
    tau = torch.nn.Parameter(torch.tensor(1.0, dtype=DOUBLE))
    criterion = HyperSimplexLoss(tau=tau)
    assert [name for name, _ in criterion.named_parameters()] == ["tau"]
    x = normal(12, 3)

    def value(t):
        return formula(x, one_hot(LABELS, 3), tau=t)[0].mean()

    criterion(x, LABELS).backward()
    same(tau.grad, (value(1 + 1e-6) - value(1 - 1e-6)) / 2e-6, rtol=1e-5, atol=1e-8)
