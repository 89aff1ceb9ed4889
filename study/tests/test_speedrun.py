"""The network of the speedrun, how it is trained, and the preset; on images that nobody took."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hypersimplex_study import speedrun
from hypersimplex_study.config import RunConfig
from hypersimplex_study.presets import PRESETS, full
from hypersimplex_study.samples import Data
from hypersimplex_study.sweep import Study
from hypersimplex_study.train import Runtime, Training, learning_rate
from test_cli import call

CONFIG = RunConfig(network="speedrun", width=4, epochs=3, batch_size=60, optimizer="nesterov", lr=0.5, momentum=0.85)
CONFIG = replace(CONFIG, schedule="triangular", bias_rate=16.0, weight_decay=1e-3, smoothing=0.1, flips=True)


@pytest.fixture(scope="module")
def data():
    """Three kinds of 16 x 16 images, by where they are bright."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 3
    x = rng.integers(0, 128, (400, 16, 16, 3))
    for c in range(3):
        x[y == c, :, :, c] += 90
    return Data(
        "made", x[:300].astype(np.uint8), y[:300], x[300:].astype(np.uint8), y[300:], ("a", "b", "c"), padding=2
    )


def make(data, **changes):
    return Training(replace(CONFIG, **changes), data, Runtime(threads=1))


def test_the_first_layer_whitens_and_stays(data):
    images = torch.randn(200, 3, 16, 16).cumsum(2)  # which are correlated
    layer = speedrun.whitening(images)
    found = layer(images)
    assert found.shape == (200, 24, 8, 8)
    flat = found[:, :12].transpose(0, 1).flatten(1)
    torch.testing.assert_close(flat @ flat.T / flat.shape[1], torch.eye(12), rtol=0, atol=0.02)
    torch.testing.assert_close(found[:, 12:], -found[:, :12])
    training = make(data)
    before = training.model[0].weight.clone()
    training.run_epoch()
    assert torch.equal(training.model[0].weight, before)


def test_the_biases_of_batchnorm_have_their_own_rate_and_the_scales_none(data):
    training = make(data)
    norms = [m for m in training.model.modules() if isinstance(m, nn.BatchNorm2d)]
    training.run_epoch()
    assert all(bool((m.weight == 1).all()) for m in norms)
    rest, biases = training.optimizer.param_groups
    assert len(biases["params"]) == len(norms) == 6
    assert biases["lr"] == 16 * rest["lr"]
    # A step takes off as much of both, by the schedule's part of its height.
    assert rest["weight_decay"] * 0.5 == pytest.approx(1e-3)
    assert biases["weight_decay"] * 8 == pytest.approx(1e-3)


def test_the_rate_rises_and_falls():
    rates = [learning_rate(CONFIG, step, 100) for step in range(101)]
    assert rates[0] == 0.1
    assert max(rates) == rates[23] == 0.5
    assert rates[100] == pytest.approx(0.035)


@pytest.mark.parametrize("loss", ["cross-entropy", "hypersimplex"])
def test_it_learns_decides_by_both_views_and_resumes(data, loss):
    # The mean of squares over samples and classes has the smaller gradient.
    lr = {"cross-entropy": 0.5, "hypersimplex": 4.0}[loss]
    whole, part = make(data, loss=loss, lr=lr), make(data, loss=loss, lr=lr)
    for _ in range(3):
        last = whole.run_epoch()
    assert last.test_accuracy > 0.9
    part.run_epoch()
    rest = make(data, loss=loss, lr=lr)
    rest.restore(part.snapshot())
    while not rest.finished:
        rest.run_epoch()
    assert [e.train_loss for e in rest.history] == [e.train_loss for e in whole.history]
    x = whole.inputs(whole.prepared.test, torch.arange(100))
    whole.model.eval()
    with torch.no_grad():
        both = (whole.model(x) + whole.model(x.flip(3))) / 2
        torch.testing.assert_close(whole.decided(x), both)
        assert not torch.allclose(both, whole.model(x), atol=1e-4)
    # Thresholds taken off either view before the mean decide the same as after it.
    views = [whole.loss.scores(whole.logits(v)) for v in (x, x.flip(3))]
    torch.testing.assert_close(sum(views) / 2, whole.loss.scores(both), rtol=1e-4, atol=1e-4)


def test_smoothing_is_the_part_of_the_label(data):
    training = make(data)
    logits, target = torch.randn(6, 3), torch.arange(6) % 3
    expected = nn.functional.cross_entropy(logits, target, label_smoothing=0.1)
    torch.testing.assert_close(training.loss(logits, target), expected)


def test_both_arms_have_as_many_settings():
    study = PRESETS["speedrun"]
    runs = study.tuning()
    counts = {loss: len({c.setting() for c in runs if c.loss == loss}) for loss in study.loss}
    assert counts == {"cross-entropy": 63, "hypersimplex": 63}
    assert not set(study.seed) & set(study.tuning_seed)
    assert (full(study).width, len(full(study).seed)) == (64, 50)


def test_what_a_loss_or_optimizer_does_not_use_makes_no_second_run():
    study = Study(loss=("hypersimplex",), smoothing=(0.1, 0.2), bias_rate=(1.0, 2.0), seed=(0,))
    assert len(study.compared()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--smoothing", "1"], "smoothing must be at least 0 and below 1, got 1.0"),
        (["--bias-rate", "0", "--optimizer", "sgd"], "bias_rate must be positive, got 0.0"),
        (["--network", "speedrun"], "network speedrun needs images of at least 16 x 16, got 8 x 8"),
        (["--full"], "full must be left out without the preset speedrun"),
    ],
)
def test_bad_settings_are_named(tmp_path, words, message):
    assert message in call("study", "run", *words, "--store", tmp_path / "s.sqlite", code=1)


def test_full_says_its_cost(tmp_path, data, monkeypatch):
    from hypersimplex_study import commands, estimate

    for module in (commands, estimate):
        monkeypatch.setattr(module, "load_for", lambda *_: data)
    monkeypatch.setattr(commands, "dry_run", lambda *_: None)
    output = call("study", "run", "--preset", "speedrun", "--full", "--dry-run", "--store", tmp_path / "s.sqlite")
    assert "PFLOP in all, without the evaluations" in output
    small, large = (
        speedrun.petaflops(speedrun.network(torch.rand(9, 3, 32, 32), 10, w), (3, 32, 32), 1) for w in (16, 64)
    )
    assert 8 < large / small < 16
