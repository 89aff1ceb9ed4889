"""Defined and finite where classes or samples are missing, and NaN only where NaN went in."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from tests.torch.losses import DOUBLE, every_path, formula, labels_of, leaf, normal, one_hot, using

pytestmark = every_path


def value_and_grad(path, logits, target, **kwargs):
    x = logits.clone().requires_grad_()
    with using(path):
        loss = hypersimplex_loss(x, target, **kwargs)
        return loss.detach(), torch.autograd.grad(loss.sum(), x)[0]


def test_a_class_absent_from_the_batch(path):
    """Its column projects to zeros, as its targets are, and gets no gradient."""
    logits, target = normal(30, 4), labels_of(30, classes=3)
    loss, grad = value_and_grad(path, logits, target)
    losses, expected = formula(logits[:, :3], one_hot(target, 3))
    torch.testing.assert_close(loss, losses.mean())
    torch.testing.assert_close(grad[:, :3], expected / 30)
    assert not grad[:, 3].any()


def test_a_sample_exactly_at_the_threshold_is_not_active(path):
    """Its error does not count in the mean of the active ones: theirs are equal here, so no gradient is left."""
    for n in range(5, 40):
        logits, target = torch.full((n, 1), -3.0), torch.zeros(n, 1)
        logits[:3, 0], target[0] = torch.tensor([0.0, 0.5, 0.5]), 1
        for shift in (0, n // 2, n - 1):
            loss, grad = value_and_grad(path, logits.roll(shift, 0), target.roll(shift, 0), reduction="sum")
            assert loss == 0.75
            assert not grad.any(), (n, shift)


@pytest.mark.parametrize("n", [1, 9])
def test_a_batch_of_one_class(path, n):
    """k is n for that class and 0 for the others: nothing is left to decide."""
    loss, grad = value_and_grad(path, normal(n, 4), torch.full((n,), 2))
    assert loss == 0
    assert torch.equal(grad, torch.zeros(n, 4, dtype=DOUBLE))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("n", [5, 0])
def test_nothing_left_is_what_cross_entropy_gives(path, reduction, n):
    logits, target = normal(n, 4), torch.full((n,), -100)
    x = logits.clone().requires_grad_()
    expected = cross_entropy(x, target, reduction=reduction)
    (expected_grad,) = torch.autograd.grad(expected.sum(), x)
    loss, grad = value_and_grad(path, logits, target, reduction=reduction)
    torch.testing.assert_close(loss, expected.detach(), equal_nan=True)
    assert torch.equal(grad, expected_grad)
    assert not grad.any()


def test_nothing_left_gives_no_gradient_to_other_arguments(path):
    weight, tau = torch.ones(4, dtype=DOUBLE, requires_grad=True), torch.ones(4, dtype=DOUBLE, requires_grad=True)
    with using(path):
        loss = hypersimplex_loss(normal(5, 4), torch.full((5,), -100), weight, tau=tau)
        grads = torch.autograd.grad(loss, (weight, tau))
    assert loss.isnan()
    assert not any(grad.any() for grad in grads)


def test_an_empty_dense_batch(path):
    loss, grad = value_and_grad(path, normal(0, 4), normal(0, 4))
    assert loss.isnan()
    assert grad.shape == (0, 4)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_saturated_logits(path, dtype):
    """All entries at 0 or 1: the loss counts the wrong ones, and there is no gradient."""
    target = labels_of(30, classes=3)
    logits = torch.where(one_hot(target, 3) > 0, 1e6, -1e6).to(dtype)
    loss, grad = value_and_grad(path, logits, target, reduction="sum")
    assert loss == 0
    assert not grad.any()
    loss, grad = value_and_grad(path, logits, target.roll(1), reduction="sum")
    wrong = (target != target.roll(1)).sum()
    assert wrong > 0
    assert loss == wrong  # one half for the class that is missing, one half for the one in its place
    assert not grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_huge_and_tiny_scales_stay_finite(path, dtype):
    for scale, tau in ((1e30, 1e-3), (1e-30, 1e3), (1e6, 1e-6), (1.0, 1e-9)):
        loss, grad = value_and_grad(path, normal(50, 3, dtype=dtype) * scale, labels_of(50, classes=3), tau=tau)
        assert 0 <= loss <= 2
        assert grad.isfinite().all()


@pytest.mark.parametrize("weight", [None, [0.5, 3.0]])
def test_infinite_logits(path, weight):
    """+inf is a certain 1 and -inf a certain 0; the others share the rest, as if k were that much smaller."""
    logits, target = normal(20, 2), labels_of(20, classes=2)
    logits[3, 0], logits[5, 0] = torch.inf, -torch.inf
    each = torch.ones(2) if weight is None else torch.tensor(weight)
    loss, grad = value_and_grad(path, logits, target, weight=None if weight is None else each, reduction="sum")
    finite = torch.ones(20, dtype=torch.bool)
    finite[[3, 5]] = False
    hot = one_hot(target, 2)
    first, first_grad = formula(logits[finite, :1], hot[finite, :1], k=hot[:, 0].sum() - 1, weight=each[:1])
    second, second_grad = formula(logits[:, 1:], hot[:, 1:], weight=each[1:])
    certain = each[0] * ((1 - hot[3, 0]) ** 2 + hot[5, 0] ** 2) / 2
    torch.testing.assert_close(loss, first.sum() + second.sum() + certain)
    torch.testing.assert_close(grad[finite, :1], first_grad)
    torch.testing.assert_close(grad[:, 1:], second_grad)
    assert not grad[[3, 5], 0].any()


def test_a_nan_logit_spoils_its_column_and_the_loss(path):
    logits, target = normal(20, 3), labels_of(20, classes=3)
    logits[4, 1] = torch.nan
    loss, grad = value_and_grad(path, logits, target)
    assert loss.isnan()
    assert grad[:, 1].isnan().all()
    assert grad[:, [0, 2]].isfinite().all()
    target[4] = -100
    loss, grad = value_and_grad(path, logits, target)
    assert loss.isfinite(), "an ignored sample may hold anything"
    assert grad.isfinite().all()


@pytest.mark.parametrize("weight", [None, [2.0, 6.0]])
def test_ties(path, weight):
    given = {"weight": None if weight is None else torch.tensor(weight), "reduction": "sum"}
    loss, grad = value_and_grad(path, torch.zeros(8, 2, dtype=DOUBLE), torch.tensor([0] * 6 + [1] * 2), **given)
    first, second = weight or (1.0, 1.0)
    assert loss == (first + second) / 2 * (6 * 0.25**2 + 2 * 0.75**2)
    torch.testing.assert_close(grad[:, 0], first * torch.tensor([-0.25] * 6 + [0.75] * 2, dtype=DOUBLE))


@pytest.mark.parametrize("weight", [None, [0.5, 2.0, 3.0]])
def test_k_at_its_ends(path, weight):
    """All of a column's samples, and none of another's, whatever the targets are; only the third is searched for."""
    logits, target = normal(12, 3), labels_of(12, classes=3)
    given = {"k": torch.tensor([12.0, 0.0, 3.5]), "weight": None if weight is None else torch.tensor(weight)}
    losses, expected = formula(logits, one_hot(target, 3), **given)
    loss, grad = value_and_grad(path, logits, target, reduction="sum", **given)
    torch.testing.assert_close(loss, losses.sum())
    torch.testing.assert_close(grad, expected)


def test_a_nan_batch_does_not_spoil_the_thresholds(path):
    criterion, target = HyperSimplexLoss(), labels_of(30, classes=3)
    with using(path):
        criterion(leaf(30, 3), target)
        before = criterion.threshold.clone()
        spoilt = normal(30, 3, seed=5)
        spoilt[0, 1] = torch.nan
        criterion(spoilt.requires_grad_(), target)
    assert criterion.threshold[1] == before[1]
    assert (criterion.threshold != before).tolist() == [True, False, True]
