"""Evaluation: statistics and thresholds of the present weights, the same training, and runs from before it."""

from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from hypersimplex_study import evaluation
from hypersimplex_study.config import EVALUATIONS, LATER, RunConfig, from_mapping
from hypersimplex_study.data import load_cached
from hypersimplex_study.train import Runtime, Training

CNN = RunConfig(network="cnn", width=4, epochs=2, batch_size=256, lr=1e-2)
LOSSES = ["cross-entropy", "hypersimplex"]


def make(config):
    return Training(config, load_cached("digits", None, None), Runtime(threads=1))


def statistics(model):
    return [(m.running_mean.clone(), m.running_var.clone()) for m in model.modules() if isinstance(m, nn.BatchNorm2d)]


@pytest.mark.parametrize("loss", LOSSES)
def test_statistics_are_those_of_the_training_images_at_the_present_weights(loss):
    training = make(replace(CNN, loss=loss))
    training.run_epoch()
    x = training.inputs(training.prepared.train, training.part)
    with torch.no_grad():
        outputs = torch.tensor_split(training.model[0](x), 3)  # 1294 images, 512 at a time
    mean = torch.stack([o.mean((0, 2, 3)) for o in outputs]).mean(0)
    variance = torch.stack([o.transpose(0, 1).flatten(1).var(1) for o in outputs]).mean(0)
    first = training.model[1]
    torch.testing.assert_close(first.running_mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.running_var, variance, rtol=1e-4, atol=1e-5)
    assert first.momentum == 0.1


def test_thresholds_are_exact_at_the_present_weights():
    training = make(RunConfig(loss="hypersimplex", epochs=1, batch_size=256))
    training.run_epoch()
    x, y = training.inputs(training.prepared.train, training.part), training.prepared.train_y[training.part]
    training.model.eval()
    with torch.no_grad():
        logits = training.model(x)
        p = ((logits - training.loss.threshold) / 1.5).clamp(0, 1)
    torch.testing.assert_close(p.sum(0), torch.bincount(y, minlength=10).float(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_training_is_the_same_whatever_evaluates_it(loss):
    first, second = (make(replace(CNN, loss=loss, augment=True, evaluation=e)) for e in EVALUATIONS)
    for training in (first, second):
        training.run_epoch(), training.run_epoch()
    assert [e.train_loss for e in first.history] == [e.train_loss for e in second.history]
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert first.history[-1].test_accuracy != second.history[-1].test_accuracy


@pytest.mark.parametrize("loss", LOSSES)
def test_at_few_steps_running_averages_hide_what_was_learned(loss):
    scores = {}
    for name in EVALUATIONS:
        training = make(replace(CNN, network="paper", width=8, loss=loss, evaluation=name))
        scores[name] = [training.run_epoch().test_accuracy for _ in range(2)]
    first, second = (a - b for a, b in zip(scores["recomputed"], scores["running"], strict=True))
    assert first > 0.2
    assert second > 0.1


def test_the_cost_and_the_steps_are_recorded():
    training = make(CNN)
    first, second = training.run_epoch(), training.run_epoch()
    assert (first.steps, second.steps) == (6, 12)  # 1294 images in batches of 256
    assert first.recompute_seconds > 0
    assert first.evaluate_seconds > 0
    assert first.recompute_seconds + first.evaluate_seconds < first.seconds
    assert make(replace(CNN, evaluation="running")).run_epoch().recompute_seconds < 1e-3


def test_dropout_is_off_and_draws_nothing(short):
    own = replace(
        load_cached("digits", None, None),
        model=lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 10)),
    )
    training = Training(short, own, Runtime(threads=1))
    before = torch.get_rng_state()
    training.recompute()
    assert torch.equal(torch.get_rng_state(), before)
    training.recompute()
    again = training.loss.threshold.clone()
    training.recompute()
    assert torch.equal(training.loss.threshold, again)


def test_a_model_that_decides_one_class_shows():
    training = make(RunConfig(epochs=1))
    with torch.no_grad():
        training.model[-1].bias[3] += 1e6
    assert training.evaluate()["one_class"] == 1.0


def test_an_epoch_is_as_many_passes_as_the_steps_need():
    training = make(replace(CNN, network="mlp", batch_size=1294, min_steps=7))
    assert [training.run_epoch().steps for _ in range(2)] == [4, 8]
    # a tuning run has passes as long as those of the runs it chooses for
    short = make(replace(CNN, network="mlp", batch_size=1294, min_steps=7, epochs=1, tunes_for=2))
    assert short.run_epoch().steps == 4


def test_the_part_is_fixed_and_bounded():
    rows = torch.arange(10_000)
    part = evaluation.part_of(rows)
    assert len(part) == len(part.unique()) == evaluation.PART
    assert torch.equal(part, evaluation.part_of(rows))
    assert len(evaluation.part_of(rows[:7])) == 7


def test_runs_from_before_keep_their_keys():
    """The key of this configuration as computed before the fields in LATER existed."""
    old = RunConfig(loss="hypersimplex", batch_size=512, seed=42, evaluation="running")
    assert old.key() == "fdf18e4b235cdcd7"
    stored = {k: v for k, v in asdict(old).items() if k not in LATER}
    assert from_mapping(stored) == old
    assert RunConfig(loss="hypersimplex", batch_size=512, seed=42).key() != old.key()
