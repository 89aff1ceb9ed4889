"""HyperSimplexLoss: thresholds that are tracked, calibrated, saved, moved, and decided by."""

import copy
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss, threshold
from tests.torch.losses import DOUBLE, every_path, labels_of, leaf, normal, one_hot, same, using


def batches(count=12, n=40, classes=4):
    return [(leaf(n, classes, seed=i) + i, labels_of(n, classes=classes, seed=i)) for i in range(count)]


def thresholds(logits, target, classes=4, tau=1.0):
    return threshold(logits.detach(), one_hot(target, classes).sum(0), tau, dim=0)


@every_path
@pytest.mark.parametrize("n", [40, 99, 100, 101, 999, 1000, 1001])
@pytest.mark.parametrize("momentum", [0.25, 1.0, 0.0, None])
def test_the_running_threshold_is_the_average_and_then_moves_by_its_weight(path, momentum, n):
    """max(1/seen, weight), where without momentum the weight is N/1000, from 0.1 to 1, for a batch of N samples."""
    if n > 40 and momentum is not None:
        return
    weight = min(max(n / 1000, 0.1), 1.0) if momentum is None else momentum
    criterion, expected = HyperSimplexLoss(momentum=momentum), torch.zeros(4, dtype=DOUBLE)
    with using(path):
        for seen, batch in enumerate(batches(30 if n < 200 else 3, n), start=1):
            assert torch.equal(criterion(*batch), hypersimplex_loss(*batch))
            expected += max(1 / seen, weight) * (thresholds(*batch) - expected)
            same(criterion.threshold, expected)
            assert criterion.samples == seen * n
    if momentum == 0:
        batches_ = batches(30)
        same(criterion.threshold, torch.stack([thresholds(*batch) for batch in batches_]).mean(0))


@every_path
def test_larger_batches_weigh_more(path):
    sizes, criterion = (40, 25, 200), HyperSimplexLoss(momentum=0.0)
    parts = [batches(1, n)[0] for n in sizes]
    with using(path):
        for part in parts:
            criterion(*part)
    expected = sum(n * thresholds(*part) for n, part in zip(sizes, parts, strict=True)) / sum(sizes)
    same(criterion.threshold, expected)
    assert criterion.seen.tolist() == [265] * 4


@every_path
def test_images_count_as_samples_not_their_pixels(path):
    criterion, other = HyperSimplexLoss(num_classes=4).double(), HyperSimplexLoss(num_classes=4, momentum=0.1).double()
    with using(path):
        for seed in range(80):
            images, target = leaf(20, 4, 3, 2, seed=seed) + seed, labels_of(20, 3, 2, classes=4)
            criterion(images, target), other(images, target)
    assert criterion.samples == 1600
    same(criterion.threshold, other.threshold)


def validate(model, criterion):
    """The usual loop: nobody calls criterion.eval()."""
    model.eval()
    with torch.no_grad():
        criterion(model(normal(40, 3).float()) + 5, labels_of(40, classes=4))
    model.train()


def test_validation_does_not_move_the_thresholds():
    model, criterion = nn.Linear(3, 4), HyperSimplexLoss(num_classes=4)
    criterion(model(normal(40, 3).float()), labels_of(40, classes=4))
    before = copy.deepcopy(criterion.state_dict())
    validate(model, criterion)
    criterion(model(normal(40, 3).float()).detach() + 5, labels_of(40, classes=4))
    assert all(torch.equal(criterion.state_dict()[name], value) for name, value in before.items())


@every_path
@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("tail", [lambda loss: loss, torch.exp], ids=["loss", "exp"])
def test_checkpointing_counts_a_batch_once(path, use_reentrant, tail):
    model, criterion = nn.Linear(3, 4), HyperSimplexLoss(num_classes=4)
    x, target = normal(40, 3).float().requires_grad_(), labels_of(40, classes=4)
    with using(path):
        loss = checkpoint(lambda x: tail(criterion(model(x), target)), x, use_reentrant=use_reentrant)
        loss.backward()
    assert criterion.samples == 40
    assert criterion.seen.tolist() == [40] * 4


# A reentrant checkpoint within another one gets an input without a gradient at first.
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@every_path
@pytest.mark.parametrize("around", [nullcontext, save_on_cpu])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("outer", [True, False])
def test_nested_checkpoints_count_a_batch_once(path, outer, inner, around):
    model, criterion = nn.Linear(3, 4), HyperSimplexLoss(num_classes=4)
    x, target = normal(40, 3).float().requires_grad_(), labels_of(40, classes=4)
    with using(path), around():
        nested = partial(checkpoint, lambda x: criterion(model(x), target).exp(), use_reentrant=inner)
        checkpoint(lambda x: nested(x * 2).exp(), x, use_reentrant=outer).backward()
    assert criterion.samples == 40


@every_path
def test_a_class_absent_from_a_batch_keeps_its_threshold(path):
    criterion = HyperSimplexLoss(momentum=0.0)
    (first, labels), (second, _), (third, _) = batches(3)
    absent = torch.where(labels == 2, 1, labels)
    with using(path):
        criterion(first, labels)
        before = criterion.threshold.clone()
        criterion(second, absent)
        assert criterion.threshold[2] == before[2]
        assert (criterion.threshold != before).sum() == 3
        criterion(third, labels)
        # Two batches had class 2, three had the others; the share of positives counts all three.
        same(criterion.threshold[2], (thresholds(first, labels) + thresholds(third, labels))[2] / 2)
    assert criterion.seen.tolist() == [120, 120, 80, 120]
    same(criterion.share[2], (labels == 2).double().mean() * 2 / 3)


@every_path
def test_a_batch_of_one_class_moves_nothing(path):
    criterion = HyperSimplexLoss()
    logits, labels = batches(1)[0]
    with using(path):
        criterion(logits, labels)
        before = criterion.threshold.clone()
        criterion(logits + 7, torch.full_like(labels, 1))
        criterion(logits + 7, torch.full_like(labels, -100))
    assert torch.equal(criterion.threshold, before)
    assert criterion.samples == 80, "the batch without any sample is none"


@every_path
def test_eval_freezes(path):
    criterion = HyperSimplexLoss()
    first, second = batches(2)
    with using(path):
        criterion(*first)
        before = copy.deepcopy(criterion.state_dict())
        same(criterion.eval()(*second), hypersimplex_loss(*second))
        assert all(torch.equal(criterion.state_dict()[name], value) for name, value in before.items())
        criterion.train()(*second)
    assert not torch.equal(criterion.threshold, before["threshold"])


def test_a_fresh_module_in_eval_mode_still_gives_the_loss():
    batch = batches(1)[0]
    criterion = HyperSimplexLoss().eval()
    same(criterion(*batch), hypersimplex_loss(*batch))
    assert criterion.threshold is None


@every_path
@pytest.mark.parametrize("kind", [tuple, list])
def test_calibrate_is_the_exact_average_of_a_pass(path, kind):
    criterion = HyperSimplexLoss()
    with using(path):
        criterion(leaf(40, 4) + 100, labels_of(40, classes=4))
        assert criterion.calibrate(kind(batch) for batch in batches()) is criterion
    same(criterion.threshold, torch.stack([thresholds(*batch) for batch in batches()]).mean(0))
    same(criterion.share, torch.stack([one_hot(target, 4).mean(0) for _, target in batches()]).mean(0))


@pytest.mark.parametrize("given", [{"k": 10.0}, {"prior": 0.25}, {"prior": 0.25, "tau": 3.0}])
def test_calibrate_by_logits_alone_uses_k_or_prior(given):
    criterion = HyperSimplexLoss(**given).calibrate(logits for logits, _ in batches())
    expected = [threshold(logits.detach(), 10, given.get("tau", 1.0), dim=0) for logits, _ in batches()]
    same(criterion.threshold, torch.stack(expected).mean(0))


def test_calibrate_by_logits_alone_uses_the_share_seen_in_training():
    criterion = HyperSimplexLoss(momentum=0.0)
    for batch in batches():
        criterion(*batch)
    share = criterion.share.clone()
    criterion.calibrate([normal(60, 4), normal(60, 4, seed=1)])
    expected = [threshold(normal(60, 4, seed=seed), share * 60, dim=0) for seed in (0, 1)]
    same(criterion.threshold, torch.stack(expected).mean(0))
    assert torch.equal(criterion.share, share)


@pytest.mark.parametrize("with_target", [True, False])
def test_calibrate_takes_one_sample_as_the_loss_does(with_target):
    logits, target = normal(4), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    one, batch = HyperSimplexLoss(num_classes=4, prior=0.5), HyperSimplexLoss(num_classes=4, prior=0.5)
    one.calibrate([(logits, target) if with_target else logits] * 3)
    batch.calibrate([(logits[None], target[None]) if with_target else logits[None]] * 3)
    assert one.seen.all()
    for name, value in batch.state_dict().items():
        assert torch.equal(one.state_dict()[name], value), name
    with pytest.raises(ValueError, match=r"input must have shape \(N, 4\), or \(4,\) for one sample"):
        one.calibrate([(normal(3), torch.zeros(3)) if with_target else normal(3)])


def test_calibrate_keeps_the_threshold_of_a_class_it_does_not_meet():
    criterion = HyperSimplexLoss()
    logits, labels = batches(1)[0]
    criterion(logits, labels)
    before = criterion.threshold.clone()
    criterion.calibrate([(logits + 1, torch.where(labels == 2, 1, labels))])
    assert criterion.threshold[2] == before[2]
    assert (criterion.threshold != before).sum() == 3


def test_calibrate_that_fails_changes_nothing():
    criterion = HyperSimplexLoss()
    criterion(*batches(1)[0])
    before = criterion.threshold.clone()
    with pytest.raises(ValueError, match="target must be between 0 and 3"):
        criterion.calibrate([*batches(3), (normal(5, 4), torch.full((5,), 9))])
    assert torch.equal(criterion.threshold, before)
