"""label_smoothing: the loss with targets of which a share is spread over the classes."""

import numpy as np
import pytest
import torch

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from hypersimplex.torch.loss import Settings, compute
from tests.torch.losses import every_path, formula, labels_of, normal, one_hot, same, using


def smooth(target, classes, share=0.2):
    return one_hot(target, classes) * (1 - share) + share / classes


@every_path
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [0, 7])
def test_smoothed_labels(path, reduction, ignored):
    logits, target = normal(40, 5).requires_grad_(), labels_of(40, classes=5)
    target[:ignored] = -100
    each, gradient = formula(logits[ignored:], smooth(target[ignored:], 5))
    with using(path):
        loss = hypersimplex_loss(logits, target, reduction=reduction, label_smoothing=0.2)
        loss.sum().backward()
    scale = 1 / (40 - ignored) if reduction == "mean" else 1.0
    if reduction == "none":
        same(loss[ignored:], each)
        assert not loss[:ignored].any()
    else:
        same(loss, each.sum() * scale)
    same(logits.grad[ignored:], gradient * scale)
    assert not logits.grad[:ignored].any()


@pytest.mark.parametrize("shape", [(6, 4, 5), (2, 4, 3, 3)])
def test_smoothed_labels_of_positions(shape):
    logits, target = normal(*shape), labels_of(shape[0], *shape[2:], classes=4)
    rows = logits.movedim(1, -1).reshape(-1, 4)
    same(hypersimplex_loss(logits, target, label_smoothing=0.2), formula(rows, smooth(target.reshape(-1), 4))[0].mean())


def test_smoothed_dense_targets():
    logits, target = normal(40, 5), labels_of(40, classes=5)
    by_labels = hypersimplex_loss(logits, target, label_smoothing=0.2)
    same(hypersimplex_loss(logits, one_hot(target, 5), label_smoothing=0.2), by_labels)
    # One column is two classes: half of the share goes to the other one.
    binary = labels_of(40, classes=2)
    expected = hypersimplex_loss(logits[:, 0], binary * 0.8 + 0.1)
    same(hypersimplex_loss(logits[:, 0], binary, label_smoothing=0.2), expected)
    same(hypersimplex_loss(logits[:, :1], binary[:, None], label_smoothing=0.2), expected)


@every_path
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_column_is_two_classes_also_where_the_target_is_its_index(path, reduction, dtype):
    """Labels of one class can only be 0; weights and ignored samples keep them labels."""
    logits = normal(64, 1, dtype=dtype).requires_grad_()
    target = torch.zeros(64, dtype=torch.long)
    expected = hypersimplex_loss(logits, torch.full((64, 1), 0.95, dtype=dtype), reduction=reduction)
    (slope,) = torch.autograd.grad(expected.sum(), logits)
    padded, ignored = torch.cat((logits, logits[:6])), torch.cat((target, torch.full((6,), -100)))
    with using(path):
        plain = hypersimplex_loss(logits, target, reduction=reduction, label_smoothing=0.1)
        weighted = hypersimplex_loss(logits, target, torch.ones(1), reduction=reduction, label_smoothing=0.1)
        some = hypersimplex_loss(padded, ignored, reduction=reduction, label_smoothing=0.1)
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    for got in (plain, weighted, some[:64] if reduction == "none" else some):
        same(got, expected, **tolerance)
        (gradient,) = torch.autograd.grad(got.sum(), logits, retain_graph=True)
        torch.testing.assert_close(gradient, slope, **tolerance)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_k_of_smoothed_labels_has_all_digits(classes, share):
    target = labels_of(64, classes=classes)
    logits = normal(64, classes, dtype=torch.float32)
    wanted = smooth(target, max(classes, 2), share).sum(0)[:classes]
    weights = torch.ones(classes)
    settings = Settings(weights, -100, "mean", None, None, 1.0, share)
    torch.testing.assert_close(compute(logits, target, settings).mu_and_k[1].double(), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_targets_of_any_dtype_are_smoothed_alike(dtype):
    logits, target = normal(40, 5, dtype=torch.float32), labels_of(40, classes=5)
    dense = one_hot(target, 5).to(dtype)
    expected = hypersimplex_loss(logits, target, label_smoothing=0.1)
    same(hypersimplex_loss(logits, dense, label_smoothing=0.1), expected, rtol=1e-6, atol=0)


def test_one_sample():
    assert hypersimplex_loss(normal(5), torch.tensor(2), label_smoothing=0.2) < 1e-12


def test_the_module_tracks_and_calibrates_the_same_thresholds():
    logits, target = normal(40, 5).requires_grad_(), labels_of(40, classes=5)
    smoothed, dense = HyperSimplexLoss(num_classes=5, label_smoothing=0.2), HyperSimplexLoss(num_classes=5)
    same(smoothed(logits, target), dense(logits, smooth(target, 5)))
    same(smoothed.threshold, dense.threshold)
    same(smoothed.share, dense.share)
    before = smoothed.threshold.clone()
    assert smoothed.predict(logits).shape == (40,)
    same(smoothed.calibrate([(logits, target)]).threshold, before)
    assert "label_smoothing=0.2" in repr(smoothed)


@pytest.mark.parametrize("value", [np.float32(0.25), np.float16(0.25), torch.tensor(0.25), 1])
def test_smoothing_by_any_number(value):
    logits, target = normal(6, 3), labels_of(6, classes=3)
    expected = hypersimplex_loss(logits, target, label_smoothing=float(value))
    same(hypersimplex_loss(logits, target, label_smoothing=value), expected)
    criterion = HyperSimplexLoss(label_smoothing=value)
    same(criterion(logits, target), expected)
    assert type(criterion.label_smoothing) is float


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), np.float32(2), torch.tensor(2)])
def test_bad_smoothing(value):
    with pytest.raises(ValueError, match=f"label_smoothing must be between 0 and 1, got {value}"):
        HyperSimplexLoss(label_smoothing=value)
    with pytest.raises(ValueError, match="label_smoothing must be between 0 and 1"):
        hypersimplex_loss(normal(3, 2), labels_of(3, classes=2), label_smoothing=value)


@pytest.mark.parametrize("value", [True, "0.1", None, torch.ones(2), torch.tensor(True)])
def test_smoothing_is_a_number(value):
    with pytest.raises(TypeError, match="label_smoothing must be a number, got "):
        HyperSimplexLoss(label_smoothing=value)
    with pytest.raises(TypeError, match="label_smoothing must be a number, got "):
        hypersimplex_loss(normal(3, 2), labels_of(3, classes=2), label_smoothing=value)


def test_wrong_labels_are_named():
    with pytest.raises(ValueError, match="target must be between 0 and 1 or ignore_index, got 7"):
        hypersimplex_loss(normal(3, 2), torch.tensor([0, 7, 1]), label_smoothing=0.1)
