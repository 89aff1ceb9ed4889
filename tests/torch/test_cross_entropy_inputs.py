"""The inputs that torch ships for nn.CrossEntropyLoss, given to HyperSimplexLoss.

Values and gradients are compared with the float64 formula, which is reduced as torch reduces: with class indices the
mean divides by the weights of the samples, with dense targets by their number, and ignored samples are not there.
"""

import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from tests.torch.losses import DOUBLE, formula

pytest.importorskip("expecttest", reason="torch.testing._internal needs the package expecttest")

from torch.testing._internal.common_methods_invocations import sample_inputs_cross_entropy
from torch.testing._internal.common_modules import module_inputs_torch_nn_CrossEntropyLoss


def module_cases():
    torch.manual_seed(0)
    for case in module_inputs_torch_nn_CrossEntropyLoss(None, "cpu", DOUBLE, True, training=True):
        logits, target = case.forward_input.args
        yield pytest.param(logits, target.detach(), case.constructor_input.kwargs, id=case.desc)


def function_cases():
    torch.manual_seed(1)
    for case in sample_inputs_cross_entropy(None, "cpu", DOUBLE, True):
        yield pytest.param(case.input, case.args[0].detach(), case.kwargs)


CASES = [*module_cases(), *function_cases()]
every_case = pytest.mark.parametrize(("logits", "target", "given"), CASES)


def dense(logits, target, smoothing):
    """Rows of logits, of targets, and which of them are the same sample's."""
    if target.dim() == 0:
        logits, target = logits[None], target[None]
    classes = logits.shape[1]
    rows = logits.detach().movedim(1, -1).reshape(-1, classes)
    if target.shape == logits.shape:
        wanted = target.movedim(1, -1).reshape(-1, classes)
    else:
        wanted = torch.nn.functional.one_hot(target.reshape(-1).clamp(min=0), classes).to(DOUBLE)
    return rows, wanted * (1 - smoothing) + smoothing / classes


def expected(logits, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    rows, wanted = dense(logits, target, label_smoothing)
    labelled = target.shape != logits.shape
    kept = target.reshape(-1) != ignore_index if labelled else torch.ones(len(rows), dtype=torch.bool)
    losses, grads = torch.zeros(len(rows), dtype=DOUBLE), torch.zeros_like(rows)
    if kept.any():
        losses[kept], grads[kept] = formula(rows[kept], wanted[kept], weight=weight)
    divisor = 1.0
    if reduction == "mean":
        divisor = weight[target[target != ignore_index]].sum() if labelled and weight is not None else kept.sum()
    losses_sum, divisor = losses.sum() / divisor, divisor if kept.any() else 1.0
    spread = (logits[None] if target.dim() == 0 else logits).movedim(1, -1).shape
    grads = (grads / divisor).reshape(spread).movedim(-1, 1).reshape(logits.shape)
    if reduction == "none":
        return losses.reshape(logits.shape[:1] + logits.shape[2:] if target.dim() else ()), grads
    return losses_sum, grads


@every_case
def test_value_and_gradient(logits, target, given):
    loss, grad = expected(logits, target, **given)
    criterion = HyperSimplexLoss(**given, num_classes=3)
    got = criterion(input=logits, target=target)
    torch.testing.assert_close(got, loss, equal_nan=True)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), logits)[0], grad)
    assert got.shape == torch.nn.CrossEntropyLoss(**given)(logits, target).shape
    torch.testing.assert_close(pickle.loads(pickle.dumps(criterion))(logits, target), got, equal_nan=True)


SMALL = [case for case in CASES if case.values[0].numel() <= 60]


@pytest.mark.parametrize(("logits", "target", "given"), SMALL)
def test_derivatives_of_every_kind(logits, target, given):
    """Second order, forward mode, and many at once; with a tau that leaves most entries active."""
    x = logits.detach().requires_grad_()
    if hypersimplex_loss(x, target, **given).isnan().any():
        return  # every sample is ignored

    def loss(x):
        return hypersimplex_loss(x, target, **given, tau=5.0)

    assert gradcheck(loss, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(loss, x, fast_mode=True, check_fwd_over_rev=True)


@every_case
def test_vmap_is_the_loop(logits, target, given):
    weight = given.get("weight")
    many = torch.stack([logits.detach(), 2 * logits.detach() + 1])
    got = torch.func.vmap(lambda x: hypersimplex_loss(x, target, **given))(many)
    torch.testing.assert_close(got, torch.stack([hypersimplex_loss(x, target, **given) for x in many]), equal_nan=True)
    if weight is not None:
        weights = torch.stack([weight, 3 * weight])
        rest = {name: value for name, value in given.items() if name != "weight"}
        got = torch.func.vmap(lambda w: hypersimplex_loss(logits.detach(), target, w, **rest))(weights)
        assert got.shape[0] == 2
