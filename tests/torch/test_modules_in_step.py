"""A module, a calibration or chunks fail on one rank: all raise at once, and after that the next call is right."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hypersimplex.torch import HyperSimplexLoss, backward_in_chunks, hypersimplex_loss
from tests.torch.ranks import ranks
from tests.torch.test_ranks_in_step import CLASSES, LOGITS, TARGET


def a_module(group, bad):
    rank = dist.get_rank(group)
    criterion = HyperSimplexLoss(num_classes=CLASSES, group=group)
    logits = LOGITS.clone().requires_grad_()
    criterion(logits, TARGET)
    before = criterion.threshold.clone()
    if bad == "folded" and rank:
        criterion.fold_into_(nn.Linear(2, CLASSES))
    if bad == "classes" and rank:
        criterion._make(CLASSES + 1, torch.float32, torch.device("cpu"))
    if bad == "lost" and rank:
        criterion.threshold = None
    with pytest.raises((RuntimeError, ValueError)) as caught:
        criterion(logits, TARGET)
    untouched = torch.equal(criterion.threshold, before) if rank == 0 else None
    return f"{caught.type.__name__}: {caught.value}", untouched, hypersimplex_loss(LOGITS, TARGET, group=group)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("folded", "RuntimeError: the thresholds and tau of this HyperSimplexLoss were folded into a layer"),
        ("classes", "ValueError: logits must have 4 classes, as num_classes says, got 3"),
        ("lost", "RuntimeError: the thresholds of 3 classes did not come along"),
    ],
)
def test_one_rank_s_module_is_in_another_state(bad, says):
    (first, untouched, value), (second, _, other) = ranks.run(2, a_module, bad, timeout=30)
    assert second.startswith(says)
    assert first.startswith(f"RuntimeError: rank 1 failed: {says}")
    assert untouched
    assert torch.equal(value, other)


def calibrated(group, kind):
    rank = dist.get_rank(group)
    criterion = HyperSimplexLoss(num_classes=CLASSES, group=group, prior=0.3)
    good = [(LOGITS, TARGET), (LOGITS + 1, TARGET)]
    bad = {
        "fewer": good[:1],
        "none": [],
        "single": LOGITS,
        "kind": [*good[:1], {"logits": LOGITS}],
        "targets": [good[0], LOGITS + 1],
        "labels": [*good[:1], (LOGITS, TARGET + 1)],
        "classes": [*good[:1], (LOGITS[:, :2], TARGET % 2)],
        "reader": (pair for pair in [good[0], None] if pair or 1 / 0),
    }[kind]
    with pytest.raises((RuntimeError, ValueError, TypeError, ZeroDivisionError)) as caught:
        criterion.calibrate(bad if rank else good)
    message = f"{caught.type.__name__}: {caught.value}"
    criterion.calibrate(good)
    return message, criterion.threshold, criterion.sharpness


CALIBRATIONS = {
    "fewer": "ValueError: batches must be as many on every rank, got 1 on rank 1",
    "none": "ValueError: batches must be as many on every rank, got 0 on rank 1",
    "targets": "ValueError: batches must hold targets on every rank or on none, got logits alone on rank 1",
    "single": "TypeError: batches must be an iterable of batches, got a single one",
    "kind": "TypeError: batches must hold logits or pairs",
    "labels": "ValueError: target must be between 0 and 2 or ignore_index, got 3",
    "classes": "ValueError: logits must have 3 classes, as num_classes says, got 2",
    "reader": "ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_one_rank_calibrates_otherwise(kind):
    alone = HyperSimplexLoss(num_classes=CLASSES, prior=0.3)
    alone.calibrate([(torch.cat((x, x)), TARGET.repeat(2)) for x in (LOGITS, LOGITS + 1)])
    answers = ranks.run(2, calibrated, kind, timeout=30)
    says = CALIBRATIONS[kind]
    of_all = says.startswith("ValueError: batches")
    assert answers[0][0].startswith(says if of_all else f"RuntimeError: rank 1 failed: {says}")
    assert answers[1][0].startswith(says)
    for _, threshold, sharpness in answers:
        torch.testing.assert_close(threshold, alone.threshold)
        torch.testing.assert_close(sharpness, alone.sharpness)


class Fails(nn.Linear):
    def forward(self, x):
        if x.isnan().any():
            raise ValueError("x must be known")
        return super().forward(x)


def chunked(group, kind, parallel):
    rank = dist.get_rank(group)
    torch.manual_seed(0)
    model = Fails(CLASSES, CLASSES)
    model = DistributedDataParallel(model, process_group=group) if parallel else model
    # Without DistributedDataParallel the loss tells which ranks take part.
    criterion = HyperSimplexLoss(num_classes=CLASSES, group=group)
    given = {"loss": criterion, "inputs": LOGITS, "targets": TARGET, "chunk_size": 4}
    bad = {
        "size": {"chunk_size": 0},
        "inputs": {"inputs": "x"},
        "model": {"inputs": torch.full_like(LOGITS, torch.nan)},
        "labels": {"targets": TARGET + 1},
        "loss": {"loss": lambda *both: criterion(*both).repeat(2)},
        "error": {"loss": lambda *both: [criterion(*both), 1 / 0][0]},
    }[kind]
    with pytest.raises((RuntimeError, ValueError, TypeError, ZeroDivisionError)) as caught:
        backward_in_chunks(model, **(given | (bad if rank else {})))
    message = f"{caught.type.__name__}: {caught.value}"
    model.zero_grad()
    backward_in_chunks(model, **given)
    gradient = next(model.parameters()).grad
    total = gradient.clone()
    dist.all_reduce(total, group=group)
    return message, total / 2


CHUNKS = {
    "size": "ValueError: chunk_size must be a whole number of at least 1, got 0",
    "inputs": "TypeError: inputs must be a tensor, or a tuple, list or dict of tensors with a batch dim, got str",
    "model": "ValueError: x must be known",
    "labels": "ValueError: target must be between 0 and 2 or ignore_index, got 3",
    "loss": "ValueError: loss must give a scalar, got shape (2,)",
    "error": "ZeroDivisionError: division by zero",
}


# A loss that is no module does not tell which ranks take part.
ALONE = [(kind, False) for kind in CHUNKS if kind not in ("loss", "error")]


@pytest.mark.parametrize(("kind", "parallel"), [(kind, True) for kind in CHUNKS] + ALONE)
def test_one_rank_fails_in_chunks(kind, parallel):
    torch.manual_seed(0)
    model = nn.Linear(CLASSES, CLASSES)
    hypersimplex_loss(model(LOGITS.repeat(2, 1)), TARGET.repeat(2)).backward()
    (first, one), (second, two) = ranks.run(2, chunked, kind, parallel, timeout=30)
    assert second.startswith(CHUNKS[kind])
    assert first.startswith(f"RuntimeError: rank 1 failed: {CHUNKS[kind]}")
    torch.testing.assert_close(one, model.weight.grad)
    torch.testing.assert_close(two, model.weight.grad)
