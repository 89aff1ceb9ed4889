"""Thresholds that exist from construction, and what happens to those that do not."""

import copy
import tempfile

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

from hypersimplex.torch import HyperSimplexLoss
from tests.torch.losses import labels_of, normal, same

NAMES = {"threshold", "seen", "share", "samples"}


class Model(nn.Module):
    def __init__(self, **given):
        super().__init__()
        self.linear, self.criterion = nn.Linear(3, 4), HyperSimplexLoss(**given)

    def step(self, seed=0):
        self.criterion(self.linear(normal(40, 3, dtype=torch.float32, seed=seed)) + seed, labels_of(40, classes=4))


def trained(**given):
    model = Model(**given)
    for seed in range(3):
        model.step(seed)
    return model


def test_num_classes_makes_the_buffers():
    criterion = HyperSimplexLoss(num_classes=np.int64(5))
    assert {name for name, _ in criterion.named_buffers()} >= NAMES
    assert criterion.state_dict()["threshold"].shape == (5,)
    assert criterion.threshold.dtype == torch.float32
    assert criterion.double().threshold.dtype == torch.float64
    assert not HyperSimplexLoss().state_dict().keys() & NAMES
    assert "num_classes=5" in repr(criterion)


def test_num_classes_and_the_first_batch_make_the_same_thresholds():
    torch.manual_seed(0)
    given = Model(num_classes=4)
    lazy = Model()
    lazy.linear.load_state_dict(given.linear.state_dict())
    for seed in range(3):
        given.step(seed), lazy.step(seed)
    assert lazy.criterion.state_dict().keys() == given.criterion.state_dict().keys()
    for name, value in lazy.criterion.state_dict().items():
        assert torch.equal(given.criterion.state_dict()[name], value), name
    with pytest.raises(ValueError, match="logits must have 4 classes, as num_classes says, got 5"):
        given.criterion(normal(6, 5, dtype=torch.float32).requires_grad_(), labels_of(6, classes=5))


@pytest.mark.parametrize("given", [{}, {"num_classes": 4}])
def test_another_number_of_classes_is_refused_in_validation_too(given):
    criterion, (logits, target) = trained(**given).criterion, (normal(6, 5), labels_of(6, classes=5))
    with pytest.raises(ValueError, match=r"logits must have 4 classes, as .*, got 5"), torch.no_grad():
        criterion(logits, target)
    with pytest.raises(ValueError, match=r"logits must have 4 classes, as .*, got 5"):
        criterion.eval()(logits, target)


@pytest.mark.parametrize("given", [{}, {"num_classes": 4}])
def test_a_loss_constructed_in_inference_mode_is_trained_and_calibrated(given):
    with torch.inference_mode():
        criterion = HyperSimplexLoss(**given)
    linear, x, target = nn.Linear(3, 4), normal(40, 3, dtype=torch.float32), labels_of(40, classes=4)
    criterion(linear(x), target).backward()
    criterion.calibrate([(linear(x), target)]).fold_into_(linear)
    criterion.reset_parameters()


@pytest.mark.parametrize("given", [{}, {"num_classes": 4}])
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_checkpoint_in_half_precision_is_trained_further_with_all_digits(given, assign, dtype):
    saved = {name: value.to(dtype) for name, value in trained().state_dict().items()}
    model = Model(**given)
    model.load_state_dict(saved, assign=assign)
    model.linear.float()
    for _ in range(20):
        model.step()
    assert {buffer.dtype for buffer in model.criterion.buffers()} == {torch.float32}
    assert model.criterion.seen.tolist() == [23 * 40.0] * 4  # bfloat16 does not hold 920


def test_decisions_want_tensors():
    criterion = trained(num_classes=4).criterion
    for method in (criterion.predict, criterion.scores):
        with pytest.raises(TypeError, match="logits must be a tensor, got ndarray"):
            method(np.zeros((3, 4), dtype=np.float32))
    with pytest.raises(TypeError, match="logits must be a tensor, got list"):
        criterion.predict([[0.0] * 4])


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"num_classes": 0}, ValueError, "num_classes must be at least 1, got 0"),
        ({"num_classes": 2.0}, TypeError, r"num_classes must be a whole number, got 2\.0"),
        ({"num_classes": True}, TypeError, "num_classes must be a whole number, got True"),
        ({"num_classes": 3, "tau": [1.0, 2.0]}, ValueError, r"tau must be a number or have shape \(3,\)"),
        ({"num_classes": 3, "weight": torch.ones(4)}, ValueError, r"weight must be a number or have shape \(3,\)"),
    ],
)
def test_bad_num_classes(given, kind, message):
    with pytest.raises(kind, match=message):
        HyperSimplexLoss(**given)


def averages(model, **how):
    averaged = AveragedModel(model, **how)
    for seed in range(3):
        model.step(seed)
        averaged.update_parameters(model)
    return averaged


@pytest.mark.parametrize("use_buffers", [False, True])
def test_an_average_made_before_the_first_batch(use_buffers):
    model = Model(num_classes=4)
    averaged = averages(model, use_buffers=use_buffers).module.criterion
    if use_buffers:
        assert not torch.equal(averaged.threshold, model.criterion.threshold)
    else:
        same(averaged.threshold, model.criterion.threshold)
    assert averaged.predict(normal(6, 4)).shape == (6,)


def test_an_average_without_num_classes_says_so():
    model = Model()
    with pytest.warns(UserWarning, match="copied before its first batch.*construct it with num_classes"):
        averaged = averages(model, use_buffers=True)
    with pytest.raises(RuntimeError, match=r"thresholds of 4 classes did not come along.*with num_classes=4"):
        averaged.module.criterion.predict(normal(6, 4))


@pytest.mark.parametrize("average", ["avg_fn", "multi_avg_fn"])
def test_an_exponential_average_keeps_the_flags(average):
    """0.999 x 1 + 0.001 x 1 need not be 1, and truncated to a whole number it was 0."""
    how = get_ema_avg_fn(0.7) if average == "avg_fn" else get_ema_multi_avg_fn(0.7)
    model = Model(num_classes=4)
    averaged = AveragedModel(model, use_buffers=True, **{average: how})
    for _ in range(10):
        model.criterion(model.linear(normal(40, 3, dtype=torch.float32)), (normal(40, 4) > 0).float())
        averaged.update_parameters(model)
    assert averaged.module.criterion.predict(normal(6, 4)).shape == (6, 4)


def checkpoint(model, folder):
    dcp.save(model.state_dict(), checkpoint_id=folder)


@pytest.mark.parametrize("saved", [{}, {"num_classes": 4}])
# torch's own words on saving without a process group
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:TypedStorage", "ignore:'is_shared_cuda")
def test_a_distributed_checkpoint(saved):
    with tempfile.TemporaryDirectory() as folder:
        model = trained(**saved)
        checkpoint(model, folder)
        fresh = Model(num_classes=4)
        state = fresh.state_dict()
        dcp.load(state, checkpoint_id=folder)
        fresh.load_state_dict(state)
        for name, value in model.state_dict().items():
            assert torch.equal(fresh.state_dict()[name], value), name
        lazy = Model()
        state = lazy.state_dict()
        dcp.load(state, checkpoint_id=folder)
        with pytest.raises(RuntimeError, match="with num_classes=4"):
            lazy.load_state_dict(state)
        # dcp.load has filled the tensors of the module itself by then.
        with pytest.raises(RuntimeError, match="with num_classes=4"):
            lazy.criterion.predict(normal(6, 4))
        with pytest.raises(RuntimeError, match="with num_classes=4"):
            lazy.step()


def test_states_of_other_moments_load_into_num_classes():
    used = trained(num_classes=4)
    kept = copy.deepcopy(used.state_dict())
    # A module that had seen no batch: with and without num_classes.
    for given in ({}, {"num_classes": 4}):
        used.load_state_dict(kept)
        used.criterion.load_state_dict(HyperSimplexLoss(**given).state_dict())
        assert not used.criterion.seen.any()
    # A model that was trained with another loss.
    other = {name: value for name, value in kept.items() if name.startswith("linear")}
    Model(num_classes=4).load_state_dict(other)
    used.load_state_dict(kept)
    with pytest.raises(RuntimeError, match="Missing key"):
        used.load_state_dict(other)
    with pytest.raises(RuntimeError, match=r"size mismatch for .*threshold"):
        Model(num_classes=5).criterion.load_state_dict(used.criterion.state_dict())


def test_from_meta_to_memory():
    with torch.device("meta"):
        criterion = HyperSimplexLoss(num_classes=4)
    assert criterion.threshold.is_meta
    criterion.to_empty(device="cpu")
    criterion.reset_parameters()
    model = trained(num_classes=4)
    criterion.load_state_dict(model.criterion.state_dict())
    assert torch.equal(criterion.predict(normal(6, 4)), model.criterion.predict(normal(6, 4)))
    criterion.reset_parameters()
    assert not criterion.threshold.any()
    assert criterion.classes == 4


@pytest.mark.parametrize("junk", [0.0, 7.5, float("nan")])
def test_memory_that_nobody_filled_is_not_taken_for_thresholds(junk):
    """What to_empty leaves, and what transformers puts in place of buffers that a checkpoint does not hold."""
    model = trained(num_classes=4)
    for name, buffer in model.criterion.named_buffers():
        setattr(model.criterion, name, torch.full_like(buffer, junk))
    model.eval().train()
    model.step()
    again = Model(num_classes=4)
    again.linear.load_state_dict(model.linear.state_dict())
    again.step()
    torch.testing.assert_close(model.criterion.state_dict(), again.criterion.state_dict())


class Decision(nn.Module):
    def __init__(self, criterion):
        super().__init__()
        self.criterion = criterion

    def forward(self, logits):
        return self.criterion.scores(logits)


def test_functional_call_sees_the_thresholds():
    model, logits = Decision(trained(num_classes=4).criterion), normal(6, 4)
    given = {"criterion.threshold": torch.arange(4.0)}
    same(torch.func.functional_call(model, given, logits), logits - torch.arange(4.0))
    assert not torch.equal(model.criterion.threshold, torch.arange(4.0))
