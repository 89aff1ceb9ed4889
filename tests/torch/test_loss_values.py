"""Values and gradients of the loss against the formula of tests/torch/losses.py, for every way to compute it."""

import itertools

import pytest
import torch

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss, soft_binary_argmax
from tests.torch.losses import DOUBLE, every_path, formula, labels_of, normal, one_hot, same, using

pytestmark = every_path
SIZES = [(1, 2), (2, 2), (7, 3), (50, 10), (333, 1), (500, 17), (20, 40)]


def check(path, logits, target, expected, expected_grad, divisor=None, **kwargs):
    """The three reductions, and the gradient of each; expected are (losses, gradient of their sum)."""
    with using(path):
        for reduction, factor in (("sum", 1), ("mean", 1 / (divisor or expected.numel()))):
            x = logits.clone().requires_grad_()
            loss = hypersimplex_loss(x, target, reduction=reduction, **kwargs)
            torch.testing.assert_close(loss, expected.sum() * factor)
            torch.testing.assert_close(torch.autograd.grad(loss, x)[0], expected_grad * factor)
        x = logits.clone().requires_grad_()
        losses = hypersimplex_loss(x, target, reduction="none", **kwargs)
        torch.testing.assert_close(losses, expected)
        torch.testing.assert_close(torch.autograd.grad(losses.sum(), x)[0], expected_grad)


@pytest.mark.parametrize(("n", "classes"), SIZES)
@pytest.mark.parametrize("tau", [0.1, 1.0, 5.0])
def test_class_indices(path, n, classes, tau):
    logits, target = normal(n, classes), labels_of(n, classes=classes)
    check(path, logits, target, *formula(logits, one_hot(target, classes), tau=tau), tau=tau)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, DOUBLE])
def test_dense_targets_of_any_dtype(path, dtype):
    logits, target = normal(40, 5), (normal(40, 5, seed=1) > 0.5).to(dtype)
    check(path, logits, target, *formula(logits, target))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_class_indices_of_any_dtype(path, dtype):
    logits, target = normal(40, 5), labels_of(40, classes=5)
    check(path, logits, target.to(dtype), *formula(logits, one_hot(target, 5)))


def test_binary(path):
    logits, target = normal(60), labels_of(60, classes=2)
    losses, grad = formula(logits[:, None], target[:, None])
    check(path, logits, target, losses, grad[:, 0])
    check(path, logits[:, None], target[:, None].float(), losses, grad)


@pytest.mark.parametrize("spread", [(4,), (3, 2), (2, 1, 3)])
def test_positions_are_samples_of_the_same_slice(path, spread):
    logits, target = normal(6, 5, *spread), labels_of(6, *spread, classes=5)
    flat = logits.movedim(1, -1).reshape(-1, 5)
    losses, grad = formula(flat, one_hot(target.reshape(-1), 5))
    grad = grad.reshape(6, *spread, 5).movedim(-1, 1)
    check(path, logits, target, losses.reshape(6, *spread), grad)
    dense = one_hot(target, 5).movedim(-1, 1)
    check(path, logits, dense, losses.reshape(6, *spread), grad)


def test_one_sample_without_a_batch_dim(path):
    logits, target = normal(5), torch.tensor(3)
    losses, grad = formula(logits[None], one_hot(target[None], 5), k=torch.full((5,), 0.4), tau=3.0)
    check(path, logits, target, losses[0], grad[0], k=0.4, tau=3.0)


def test_weight(path):
    """As in nn.CrossEntropyLoss the mean of labels divides by the sum of their weights, that of dense targets by N."""
    logits, target, weight = normal(50, 4), labels_of(50, classes=4), torch.tensor([0.5, 2.0, 0.0, 3.0])
    losses, grad = formula(logits, one_hot(target, 4), weight=weight)
    check(path, logits, one_hot(target, 4), losses, grad, weight=weight)
    check(path, logits, target, losses, grad, divisor=weight[target].sum().double(), weight=weight)
    target[:20] = -100
    expected = formula(logits[20:], one_hot(target[20:], 4), weight=weight)[0].sum() / weight[target[20:]].sum()
    with using(path):
        same(hypersimplex_loss(logits, target, weight), expected)
        same(hypersimplex_loss(logits.float(), target, 7 * weight), expected.float())
        nothing = hypersimplex_loss(logits.requires_grad_(), torch.full((50,), 2), weight)
        assert nothing.isnan(), "as in nn.CrossEntropyLoss: all weights are zero"


@pytest.mark.parametrize("given", [{}, {"k": 9.5}, {"prior": 0.3}])
@pytest.mark.parametrize("ignore_index", [-100, 2, 255])
def test_ignored_rows_are_as_if_dropped(path, given, ignore_index):
    logits, target = normal(50, 4), labels_of(50, classes=4)
    target[::3] = ignore_index
    kept = target != ignore_index
    with using(path):
        for reduction in ("sum", "mean", "none"):
            x = logits.clone().requires_grad_()
            loss = hypersimplex_loss(x, target, ignore_index=ignore_index, reduction=reduction, **given)
            short = logits[kept].requires_grad_()
            dropped = hypersimplex_loss(short, target[kept], reduction=reduction, **given)
            same(loss[kept] if reduction == "none" else loss, dropped)
            if reduction == "none":
                assert torch.equal(loss[~kept], torch.zeros(len(loss[~kept]), dtype=DOUBLE))
            grad, expected = (torch.autograd.grad(one.sum(), at)[0] for one, at in ((loss, x), (dropped, short)))
            same(grad[kept], expected)
            assert not grad[~kept].any()


@pytest.mark.parametrize("value", [7.5, 12, [3.0, 0.0, 21.5, 30], torch.tensor([1.0, 2.5, 3.0, 4.0])], ids=str)
def test_k_by_number_or_class(path, value):
    logits, target = normal(30, 4), labels_of(30, classes=4)
    expected = formula(logits, one_hot(target, 4), k=torch.as_tensor(value, dtype=DOUBLE))
    check(path, logits, target, *expected, k=value)


@pytest.mark.parametrize("value", [0.25, 1, [0.1, 0.0, 1.0, 0.61], torch.tensor([0.1, 0.2, 0.3, 0.4])], ids=str)
def test_prior_by_number_or_class(path, value):
    logits, target = normal(30, 4), labels_of(30, classes=4)
    expected = formula(logits, one_hot(target, 4), k=30 * torch.as_tensor(value, dtype=DOUBLE))
    check(path, logits, target, *expected, prior=value)


@pytest.mark.parametrize("value", [3, [0.3, 1.0, 2.0, 7.0], torch.tensor([0.25, 0.5, 3.0, 1.0])], ids=str)
def test_tau_by_number_or_class(path, value):
    logits, target = normal(30, 4), labels_of(30, classes=4)
    tau = torch.as_tensor(value, dtype=DOUBLE)
    check(path, logits, target, *formula(logits, one_hot(target, 4), tau=tau), tau=value)


def test_soft_labels_sum_to_their_own_k(path):
    logits, target = normal(40, 5), labels_of(40, classes=5)
    smooth = 0.9 * one_hot(target, 5) + 0.1 / 5
    mixed = 0.3 * one_hot(target, 5) + 0.7 * one_hot(target.flip(0), 5)
    for soft in (smooth, mixed):
        check(path, logits, soft, *formula(logits, soft))


def test_the_operator_composed_with_half_the_squared_error(path):
    logits, target = normal(80, 6), labels_of(80, classes=6)
    hot = one_hot(target, 6)
    x = logits.clone().requires_grad_()
    expected = (soft_binary_argmax(x, hot.sum(0), 0.7, dim=0) - hot).square().sum() / 2 / 80
    (expected_grad,) = torch.autograd.grad(expected, x)
    with using(path):
        z = logits.clone().requires_grad_()
        loss = hypersimplex_loss(z, target, tau=0.7)
        same(loss, expected.detach())
        same(torch.autograd.grad(loss, z)[0], expected_grad)


def test_pinned_numbers(path):
    """The mean squared error is twice the loss's mean, one class being the whole sum."""
    logits = torch.tensor([2.1, 1.6, 1.0], requires_grad=True)
    with using(path):
        loss = 2 * hypersimplex_loss(logits, torch.tensor([0, 1, 0]), k=1, tau=1.5)
        (grad,) = torch.autograd.grad(loss, logits)
    assert f"{float(loss.detach()):.4f}" == "0.2963"
    torch.testing.assert_close(grad, torch.tensor([0.2963, -0.2963, 0.0]), rtol=0, atol=5e-5)


def test_the_released_setting_by_arguments(path):
    """k = N/2 for every class, and the mean over N x C squared errors: prior=0.5, times 2/C."""
    logits, target = normal(32, 10, dtype=torch.float32), labels_of(32, classes=10)
    x = logits.clone().requires_grad_()
    p = torch.stack([soft_binary_argmax(column, 16, 1.5) for column in x.T], dim=1)
    expected = torch.nn.functional.mse_loss(p, one_hot(target, 10).float())
    (expected_grad,) = torch.autograd.grad(expected, x)
    with using(path):
        z = logits.clone().requires_grad_()
        loss = 2 / 10 * HyperSimplexLoss(prior=0.5, tau=1.5)(z, target)
        same(loss, expected.detach())
        same(torch.autograd.grad(loss, z)[0], expected_grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_any_order_of_the_dims_in_memory(path, order):
    """Samples, classes and positions, the innermost one last."""
    logits, target = normal(4, 5, 3), labels_of(4, 3, classes=5)
    losses, grad = formula(logits.movedim(1, -1).reshape(-1, 5), one_hot(target.reshape(-1), 5))
    lying = logits.permute(order).contiguous().permute(*(order.index(dim) for dim in range(3)))
    assert torch.equal(lying, logits)
    check(path, lying, target, losses.reshape(4, 3), grad.reshape(4, 3, 5).movedim(-1, 1))


@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded", "channels_last"])
def test_any_layout_in_memory(path, layout):
    if layout == "channels_last":
        logits, target = normal(4, 5, 3, 2).to(memory_format=torch.channels_last), labels_of(4, 3, 2, classes=5)
    else:
        target = labels_of(24, classes=5)
        logits = {
            "transposed": lambda: normal(5, 24).T,
            "strided": lambda: normal(48, 10)[::2, ::2],
            "expanded": lambda: normal(24, 1).expand(24, 5),
        }[layout]()
        target = torch.stack([target, target], 1)[:, 0]
        assert not target.is_contiguous()
    straight = logits.contiguous()
    for dense in (False, True):
        hot = one_hot(target, 5).movedim(-1, 1)
        expected = hypersimplex_loss(straight.requires_grad_(), hot if dense else target.contiguous())
        with using(path):
            x = logits.detach().requires_grad_()
            loss = hypersimplex_loss(x, hot if dense else target)
            same(loss, expected)
            same(torch.autograd.grad(loss, x)[0], torch.autograd.grad(expected, straight)[0])
