"""Bad input: the argument, the rule and the value, in the same words whichever way the loss is computed."""

import re

import numpy as np
import pytest
import torch

from hypersimplex.torch import HyperSimplexLoss, hypersimplex_loss
from tests.torch.losses import PATHS, labels_of, leaf, normal, using

N, C = 6, 3
GOOD = labels_of(N, classes=C)
NAN = torch.full((N, C), torch.nan)


def with_label(label):
    target = GOOD.clone()
    target[2] = label
    return target


def masked():
    logits = normal(N, C)
    logits[2:, 1] = -torch.inf
    return logits


BAD = {
    "integer logits": ((GOOD.expand(C, N).T, GOOD), {}, TypeError, "input must be floating point, got torch.int64"),
    "complex logits": ((normal(N, C) + 0j, GOOD), {}, TypeError, "input must be floating point, got torch.complex128"),
    "scalar": ((torch.tensor(1.0), torch.tensor(1)), {}, ValueError,
               "input must have at least one dimension, got a scalar"),
    "shape": ((normal(N, C), GOOD[:-1]), {}, ValueError,
              "target must have the shape of input (6, 3), or that shape without its class dim, got (5,)"),
    "positions": ((normal(N, C, 4), GOOD), {}, ValueError,
                  "target must have the shape of input (6, 3, 4), or that shape without its class dim, got (6,)"),
    "binary shape": ((normal(N), GOOD[:-1]), {}, ValueError,
                     "target must have the shape of input (6,), or that shape without its class dim, got (5,)"),
    "float labels": ((normal(N, C), GOOD.float()), {}, TypeError,
                     "target must be integer where it holds class indices, got torch.float32"),
    "label too large": ((normal(N, C), with_label(3)), {}, ValueError,
                        "target must be between 0 and 2 or ignore_index, got 3"),
    "label negative": ((normal(N, C), with_label(-1)), {}, ValueError,
                       "target must be between 0 and 2 or ignore_index, got -1"),
    "ignored by another index": ((normal(N, C), with_label(-100)), {"ignore_index": -1}, ValueError,
                                 "target must be between 0 and 2 or ignore_index, got -100"),
    "dense above 1": ((normal(N, C), 2 * torch.ones(N, C)), {}, ValueError,
                      "target must be between 0 and 1 where it is dense, got 2.0"),
    "dense below 0": ((normal(N), -torch.ones(N)), {}, ValueError,
                      "target must be between 0 and 1 where it is dense, got -1.0"),
    "dense NaN": ((normal(N, C), NAN), {}, ValueError, "target must be between 0 and 1 where it is dense, got nan"),
    "dense NaN with k": ((normal(N, C), NAN), {"k": 2}, ValueError,
                         "target must be between 0 and 1 where it is dense, got nan"),
    "complex target": ((normal(N, C), NAN + 0j), {}, TypeError, "target must be real, got torch.complex64"),
    "reduction": ((normal(N, C), GOOD), {"reduction": "batchmean"}, ValueError,
                  "reduction must be 'none', 'mean' or 'sum', got 'batchmean'"),
    "k and prior": ((normal(N, C), GOOD), {"k": 1, "prior": 0.5}, ValueError,
                    "k and prior must not both be given, got k=1 and prior=0.5"),
    "k beyond the batch": ((normal(N, C), GOOD), {"k": 7}, ValueError,
                           "k must be between 0 and 6 (the number of samples), got 7"),
    "k beyond what is kept": ((normal(N, C), with_label(-100)), {"k": 5.5}, ValueError,
                              "k must be between 0 and 5 (the number of samples), got 5.5"),
    "k negative": ((normal(N, C), GOOD), {"k": [1, -2, 3]}, ValueError,
                   "k must be between 0 and 6 (the number of samples), got -2"),
    "k NaN": ((normal(N, C), GOOD), {"k": float("nan")}, ValueError,
              "k must be between 0 and 6 (the number of samples), got nan"),
    "k beyond what is finite": ((masked(), GOOD), {"k": 3}, ValueError,
                                "k must be at most 2, the number of entries that are not -inf, got 3; to lower it "
                                "where a mask leaves fewer: k = valid.sum(dim).clamp(max=k)"),
    "k of another size": ((normal(N, C), GOOD), {"k": [1, 2]}, ValueError,
                          "k must be a number or have shape (3,), got shape (2,)"),
    "k of a wrong kind": ((normal(N, C), GOOD), {"k": "all"}, TypeError,
                          "k must be a number or one number for each class, got str"),
    "prior above 1": ((normal(N, C), GOOD), {"prior": [0.5, 1.5, 0.2]}, ValueError,
                      "prior must be between 0 and 1, got 1.5"),
    "prior negative": ((normal(N, C), GOOD), {"prior": -0.1}, ValueError, "prior must be between 0 and 1, got -0.1"),
    "tau negative": ((normal(N, C), GOOD), {"tau": -1.0}, ValueError, "tau must be positive, got -1.0"),
    "tau zero": ((normal(N, C), GOOD), {"tau": 0}, ValueError, "tau must be positive, got 0.0"),
    "tau zero in one class": ((normal(N, C), GOOD), {"tau": [1, 0, 1]}, ValueError, "tau must be positive, got 0.0"),
    "tau infinite": ((normal(N, C), GOOD), {"tau": float("inf")}, ValueError,
                     "tau must be positive and finite, got inf"),
    "tau NaN": ((normal(N, C), GOOD), {"tau": float("nan")}, ValueError, "tau must be positive and finite, got nan"),
    "ignore_index where targets are dense": ((normal(N, C), torch.full((N, C), -100)), {}, ValueError,
        "target must be between 0 and 1 where it is dense, got -100.0; ignore_index is for class indices"),
    "no ignore_index": ((normal(N, C), GOOD), {"ignore_index": None}, TypeError,
                        "ignore_index must be a whole number, got None"),
    "a list for a target": ((normal(N, C), [0, 1, 2, 0, 1, 2]), {}, TypeError, "target must be a tensor, got list"),
    "a binary head": ((normal(N, 1), GOOD % 2), {}, ValueError, "target must be between 0 and 0 or ignore_index, "
                      "got 1; a binary problem has logits and targets of one shape, (N,) or (N, 1)"),
    "tau of another shape": ((normal(N, C), GOOD), {"tau": torch.ones(N, C)}, ValueError,
                             "tau must be a number or have shape (3,), got shape (6, 3)"),
    "weight of another size": ((normal(N, C), GOOD), {"weight": torch.ones(4)}, ValueError,
                               "weight must be a number or have shape (3,), got shape (4,)"),
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", BAD)
def test_message(path, case):
    args, kwargs, kind, message = BAD[case]
    for requires_grad in (False, True):
        logits = args[0].clone()
        if logits.is_floating_point():
            logits.requires_grad_(requires_grad)
        with using(path), pytest.raises(kind) as error:
            hypersimplex_loss(logits, args[1], **kwargs)
        assert str(error.value) == message


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 1, "prior": 0.5}, "k and prior must not both be given, got k=1 and prior=0.5"),
        ({"momentum": 1.5}, "momentum must be between 0 and 1 or None, got 1.5"),
        ({"momentum": -0.1}, "momentum must be between 0 and 1 or None, got -0.1"),
        ({"reduction": "max"}, "reduction must be 'none', 'mean' or 'sum', got 'max'"),
        ({"tau": -1}, "tau must be positive, got -1.0"),
        ({"tau": float("inf")}, "tau must be positive and finite, got inf"),
        ({"k": -2}, "k must be at least 0, got -2"),
        ({"prior": 2.0}, "prior must be between 0 and 1, got 2.0"),
    ],
)
def test_the_module_says_so_when_it_is_made(kwargs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        HyperSimplexLoss(**kwargs)


@pytest.mark.parametrize("weight", [10, 10.0, 2.5, np.int64(10), True, 0, 1e300, float("inf"), float("nan")])
def test_a_number_is_no_weight(weight):
    """nn.CrossEntropyLoss refuses it too; here it is what someone writes who means the number of classes."""
    hint = ", or num_classes=10 for 10 classes" if weight == 10 else ""
    message = f"weight must be a tensor with one number for each class{hint}, got {weight!r}"
    with pytest.raises(TypeError, match="^" + re.escape(message) + "$"):
        HyperSimplexLoss(weight)
    with pytest.raises(TypeError, match="^" + re.escape(message) + "$"):
        HyperSimplexLoss(weight=weight, num_classes=10)


def test_weights_may_be_a_list():
    expected = HyperSimplexLoss(torch.tensor([1.0, 2.0, 3.0]))(normal(N, C), GOOD)
    assert torch.equal(HyperSimplexLoss([1.0, 2.0, 3.0])(normal(N, C), GOOD), expected)
    assert torch.equal(HyperSimplexLoss(np.array([1.0, 2.0, 3.0]))(normal(N, C), GOOD), expected)


def test_the_module_says_so_before_it_can_decide():
    criterion = HyperSimplexLoss()
    with pytest.raises(RuntimeError, match="thresholds are not known yet: call the loss in training mode, calibrate"):
        criterion.fold_into_(torch.nn.Linear(2, C))
    with pytest.raises(RuntimeError, match=r"probabilities are not known yet: calibrate with pairs .logits, target."):
        criterion.probabilities(normal(N, C))
    with pytest.raises(ValueError, match="batches must hold at least one batch of logits, got none"):
        criterion.calibrate([])
    with pytest.raises(ValueError, match=r"batches must be pairs .logits, target. unless prior or k is given"):
        criterion.calibrate([normal(N, C)])


def test_batches_in_which_no_class_had_a_threshold_decide_nothing():
    criterion = HyperSimplexLoss()
    criterion(leaf(N, C), torch.full((N,), -100))
    criterion(leaf(1, C), GOOD[:1])
    with pytest.raises(RuntimeError, match="thresholds are not known yet"):
        criterion.fold_into_(torch.nn.Linear(2, C))
    with pytest.warns(UserWarning, match="no thresholds yet and decides by zeros"):
        assert torch.equal(criterion.predict(normal(N, C)), normal(N, C).argmax(1))


@pytest.mark.parametrize("given", [{}, {"num_classes": C}])
def test_before_the_first_batch_zeros_decide_and_one_warning_says_so(given):
    criterion, logits = HyperSimplexLoss(**given), normal(N, C)
    with pytest.warns(UserWarning, match="no thresholds yet and decides by zeros") as caught:
        classes = criterion.predict(logits)
    assert "test_loss_errors" in caught[0].filename, "the warning points at the caller"
    assert torch.equal(classes, logits.argmax(1))
    assert torch.equal(criterion.scores(logits), logits), "and without a second warning, which would be an error here"
    binary = HyperSimplexLoss()
    with pytest.warns(UserWarning, match="decides by zeros"):
        assert torch.equal(binary.predict(logits[:, 0]), (logits[:, 0] > 0.5).long())


@pytest.mark.parametrize(("classes", "which"), [(4, "class 3"), (6, "class 3 and 2 others")])
def test_classes_that_no_batch_has_had_are_decided_by_zeros_and_one_warning_says_so(classes, which):
    criterion, logits = HyperSimplexLoss(), normal(N, classes)
    with pytest.warns(UserWarning, match="no thresholds yet"):
        criterion.predict(logits)
    criterion(leaf(N, classes), GOOD)
    with pytest.warns(UserWarning, match=f"no thresholds for {which} yet and decides by zeros") as caught:
        criterion.predict(logits)
    assert "test_loss_errors" in caught[0].filename, "the warning points at the caller"
    assert torch.equal(criterion.scores(logits)[:, 3:], logits[:, 3:]), "and without a second warning"


def test_a_single_batch_is_not_an_iterable_of_batches():
    criterion = HyperSimplexLoss(prior=0.3)
    for batches in (normal(N, C), (normal(N, C), GOOD), (normal(N), torch.ones(N))):
        with pytest.raises(TypeError, match="batches must be an iterable of batches, got a single one: put it into a"):
            criterion.calibrate(batches)
    with pytest.raises(TypeError, match=r"batches must hold logits or pairs .logits, target., got dict"):
        criterion.calibrate([{"logits": normal(N, C)}])


@pytest.mark.parametrize("given", [{}, {"num_classes": C}])
def test_a_module_takes_tensors(given):
    for input, target, name in ((normal(N, C).numpy(), GOOD, "input"), (normal(C), GOOD.numpy(), "target")):
        with pytest.raises(TypeError, match=f"{name} must be a tensor, got ndarray"):
            HyperSimplexLoss(**given)(input, target)


def test_a_learned_tau_that_is_not_positive():
    with pytest.raises(ValueError, match=r"tau must be positive, got -1\.0"):
        hypersimplex_loss(normal(N, C), GOOD, tau=torch.tensor(-1.0, requires_grad=True))


def test_the_number_of_classes_cannot_change():
    criterion = HyperSimplexLoss()
    criterion(leaf(N, C), GOOD)
    before = criterion.threshold.clone()
    with pytest.raises(ValueError, match="logits must have 3 classes, as before, got 4"):
        criterion(leaf(N, 4), GOOD)
    for wrong in (normal(N, 4), normal(4), torch.tensor(0.3)):
        with pytest.raises(ValueError, match=r"logits must have 3 classes, got shape"):
            criterion.predict(wrong)
    assert torch.equal(criterion.threshold, before)
