"""Evaluation: statistics and thresholds of the present weights, the same training, and runs from before it."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from hypersimplex_study import evaluation
from hypersimplex_study.config import EVALUATIONS, LATER, RunConfig, from_mapping
from hypersimplex_study.data import load_cached
from hypersimplex_study.losses import Offsets
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
    trainings = [make(replace(CNN, loss=loss, augment=True, evaluation=e)) for e in EVALUATIONS]
    for training in trainings:
        training.run_epoch(), training.run_epoch()
    first = trainings[0]
    for other in trainings[1:]:
        assert [e.train_loss for e in first.history] == [e.train_loss for e in other.history]
        for a, b in zip(first.model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(a, b)
    assert first.history[-1].test_accuracy != trainings[-1].history[-1].test_accuracy


def test_offsets_and_scale_are_those_of_least_log_loss():
    """Logits off by an offset per class and a scale: the fit undoes both, up to what the samples say."""
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(20_000, 5, generator=generator, dtype=torch.float64)
    y = torch.distributions.Categorical(logits=true).sample()
    shift = torch.tensor([3.0, -1.0, 0.0, 2.0, -4.0], dtype=torch.float64)
    logits, loss = 4 * (true - shift), Offsets(F.cross_entropy, 5)
    loss.calibrate([(logits[:9000], y[:9000]), (logits[9000:], y[9000:])])
    assert loss.scale.item() == pytest.approx(0.25, rel=0.05)
    torch.testing.assert_close(loss.offset - loss.offset.mean(), shift.float(), rtol=0, atol=0.15)
    assert F.cross_entropy(loss.scores(logits), y) <= F.cross_entropy(true, y)
    assert loss.predict(logits).eq(y).double().mean() > logits.argmax(1).eq(y).double().mean() + 0.1


def test_the_fit_stays_finite_where_all_samples_are_right_or_a_class_is_missing():
    y = np.arange(300) % 3
    scale, offset = evaluation.fit_offsets(y, 50.0 * np.eye(4)[y])
    assert 0 < scale < 1
    assert np.isfinite(offset).all()
    for logits in (np.zeros((6, 2)), np.full((6, 2), np.inf)):
        with np.errstate(invalid="ignore"):
            scale, offset = evaluation.fit_offsets(np.arange(6) % 2, logits)
        assert (scale, offset.tolist()) == (1.0, [0.0, 0.0])


def test_cross_entropy_has_the_help_that_hypersimplex_has():
    """A bias that is wrong by as much for every sample costs plain argmax, and offsets nothing."""
    config = RunConfig(epochs=2, batch_size=128, lr=1e-2)
    training = make(config)
    before = training.run_epoch()
    with torch.no_grad():
        training.model[-1].bias[3] += 100
    training.recompute()
    found = training.evaluate()
    assert found["test_argmax"] < 0.2
    assert found["test_accuracy"] == pytest.approx(before.test_accuracy, abs=0.01)
    assert found["test_auc"] == pytest.approx(before.test_auc, abs=0.01)
    assert found["test_auc_argmax"] < before.test_auc - 0.05
    epoch = make(replace(config, evaluation="recomputed")).run_epoch()
    assert epoch.test_accuracy == epoch.test_argmax == before.test_argmax
    assert epoch.test_auc_argmax is None


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
