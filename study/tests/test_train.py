"""One training: the losses against formulas, the network against the paper, resuming bit for bit."""

import math
import platform
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from hypersimplex import reference
from hypersimplex_study import checkpoint, data, models
from hypersimplex_study.config import RunConfig
from hypersimplex_study.losses import make_loss
from hypersimplex_study.train import DivergedError, Runtime, Training, learning_rate
from trainings import NO_TIMES

ONE = Runtime(threads=1)


def make(config):
    return Training(config, data.load_cached("digits", None, None), ONE)


def run(training):
    while not training.finished:
        training.run_epoch()
    return training


def numbers(training):
    """Everything that is recorded, but the time it took."""
    return [replace(e, **NO_TIMES) for e in training.history]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 4, generator=generator), torch.arange(12) % 4


def projected(column, k, tau):
    return reference.soft_binary_argmax(column.double().numpy(), k, tau)


@pytest.mark.parametrize("name", ["hypersimplex", "hypersimplex-half"])
def test_hypersimplex_is_the_mean_squared_error_of_the_projection(batch, name):
    logits, target = batch
    onehot = F.one_hot(target, 4).double().numpy()
    k = {"hypersimplex": 3.0, "hypersimplex-half": 6.0}[name]
    p = np.stack([projected(logits[:, c], k, 1.5) for c in range(4)], axis=1)
    value = make_loss(RunConfig(loss=name), logits.shape[1])(logits, target)
    assert float(value) == pytest.approx(((p - onehot) ** 2).mean(), rel=1e-5)


def test_baselines_are_their_formulas(batch):
    logits, target = batch
    rows = torch.arange(12)
    margins = (1 + logits - logits[rows, target][:, None]).clamp(min=0)
    margins[rows, target] = 0
    softmax = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    expected = {
        "hinge": margins.sum(1).mean(),
        "mse": ((softmax - F.one_hot(target, 4)) ** 2).mean(),
        "cross-entropy": -softmax[rows, target].log().mean(),
        "label-smoothing": -(0.9 * softmax[rows, target].log() + 0.1 * softmax.log().mean(1)).mean(),
        "squentropy": -softmax[rows, target].log().mean() + ((logits**2).sum(1) - logits[rows, target] ** 2).mean() / 3,
    }
    for name, value in expected.items():
        torch.testing.assert_close(make_loss(RunConfig(loss=name), logits.shape[1])(logits, target), value)


def test_the_papers_network():
    network = models.paper(3, 64, 10, 64)
    kinds = [type(m).__name__ for m in network]
    block = ["Conv2d", "BatchNorm2d", "ReLU"]
    pooled = ["Conv2d", "BatchNorm2d", "MaxPool2d", "ReLU"]
    assert kinds == [*block, *pooled, *block, *pooled, "Flatten", "Linear", "ReLU", "Linear"]
    linear = [m for m in network if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(64 * 8 * 8, 512), (512, 10)]
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_losses_share_weights_order_and_augmentation(short):
    first, second = (make(replace(short, loss=name, augment=True)) for name in ("mse", "hypersimplex"))
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(first.generator.get_state(), second.generator.get_state())
    run(first), run(second)
    assert torch.equal(first.generator.get_state(), second.generator.get_state())


def test_seeds_differ(short):
    assert numbers(run(make(short))) != numbers(run(make(replace(short, seed=1))))


@pytest.mark.parametrize("loss", ["hypersimplex", "cross-entropy"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_resuming_gives_the_same_bits(short, loss, optimizer):
    config = replace(short, loss=loss, optimizer=optimizer, augment=True, schedule="cosine", network="cnn", width=4)
    whole = run(make(config))
    for stop in (1, 3):
        part = make(config)
        for _ in range(stop):
            part.run_epoch()
        raw = part.snapshot()
        torch.manual_seed(999)
        other = make(config)
        other.restore(raw)
        assert numbers(run(other)) == numbers(whole)
        state, expected = other.model.state_dict(), whole.model.state_dict()
        assert all(torch.equal(state[k], expected[k]) for k in expected)


def test_dropout_resumes_too(short):
    found = data.load_cached("digits", None, None)
    own = replace(found, model=lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10)))
    whole = run(Training(short, own, ONE))
    part = Training(short, own, ONE)
    part.run_epoch()
    raw = part.snapshot()
    torch.rand(7)
    other = Training(short, own, ONE)
    other.restore(raw)
    assert numbers(run(other)) == numbers(whole)


def test_a_damaged_or_foreign_checkpoint_is_recognised(short):
    training = make(short)
    training.run_epoch()
    raw = training.snapshot()
    for bad in (raw[:-1], raw[:10], b"", raw[:200] + bytes([raw[200] ^ 1]) + raw[201:]):
        with pytest.raises(checkpoint.CheckpointError, match="is damaged"):
            make(short).restore(bad)
    with pytest.raises(checkpoint.CheckpointError, match="belongs to"):
        make(replace(short, seed=1)).restore(raw)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("cross-entropy", "the training loss of epoch 0 is"),
        # torch's hinge of NaN logits is 0, which must not pass for a perfect fit
        ("hinge", "the network's weights are not finite after epoch 0"),
    ],
)
def test_divergence_is_an_error_of_its_own(short, loss, message):
    with pytest.raises(DivergedError, match=message):
        run(make(replace(short, loss=loss, optimizer="sgd", lr=1e30)))


def test_thresholds_succeed_where_plain_argmax_fails():
    training = run(make(RunConfig(loss="hypersimplex", epochs=15, batch_size=256, lr=3e-3)))
    last = training.history[-1]
    assert last.test_accuracy > 0.9
    assert last.test_accuracy > last.test_argmax + 0.05


def test_without_a_validation_split_there_is_no_validation_accuracy(short):
    epoch = make(replace(short, validation=0.0)).run_epoch()
    assert epoch.val_accuracy is None
    assert epoch.test_accuracy is not None


def test_schedules():
    config = RunConfig(lr=0.1, batch_size=512)
    assert learning_rate(config, 7, 10) == 0.1
    assert learning_rate(replace(config, schedule="linear"), 7, 10) == pytest.approx(0.4)
    cosine = replace(config, schedule="cosine")
    assert [learning_rate(cosine, s, 10) for s in (0, 5, 10)] == pytest.approx([0.1, 0.05, 0.0], abs=1e-12)
    # a tenth of the steps up, the others down
    warm = [learning_rate(replace(config, schedule="warmup"), s, 20) for s in (0, 1, 2, 11, 20)]
    assert warm == pytest.approx([0.05, 0.1, 0.1, 0.05, 0.0], abs=1e-12)
    own = replace(config, loss="cross-entropy-warmup")
    assert [learning_rate(own, s, 20) for s in (0, 1, 2, 11, 20)] == warm


def test_options_of_the_runtime_change_no_protocol(short):
    config = replace(short, network="cnn", width=4, epochs=2)
    plain = run(make(config))
    last = Training(config, plain.data, replace(ONE, channels_last=True))
    run(last)
    assert math.isclose(last.history[-1].train_loss, plain.history[-1].train_loss, rel_tol=1e-3)
    half = run(make(replace(config, precision="bfloat16")))
    assert half.config.key() != config.key()
    assert math.isclose(half.history[-1].train_loss, plain.history[-1].train_loss, rel_tol=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hyper"}, "loss must be one of cross-entropy, label-smoothing, .*, got 'hyper'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": -1.0}, "lr must be positive, got -1.0"),
        ({"validation": 1.0}, "validation must be at least 0 and below 1, got 1.0"),
        ({"evaluation": "lazy"}, "evaluation must be one of offsets, recomputed, running, got 'lazy'"),
        ({"min_steps": 0}, "min_steps must be at least 1, got 0"),
        ({"epochs": 9, "tunes_for": 8}, "tunes_for must be at least epochs, 9, got 8"),
        ({"loss": "hypersimplex", "tau": 0.0}, "tau must be positive, got 0.0"),
        ({"loss": "hypersimplex", "prior": 2.0}, "prior must be between 0 and 1, got 2.0"),
    ],
)
def test_a_bad_field_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**change)


FAULTS = """
import resource
import numpy as np
from hypersimplex_study.config import RunConfig
from hypersimplex_study.samples import Data
from hypersimplex_study.train import Runtime, Training

rng = np.random.default_rng(0)
x, y = rng.integers(0, 255, (1024, 28, 28, 1), dtype=np.uint8), np.arange(1024) % 10
data = Data("noise", x, y, x[:64], y[:64], tuple(map(str, range(10))))
config = RunConfig(dataset="noise", network="paper", width=8, batch_size=1024, validation=0.0)
training = Training(config, data, Runtime(threads=1))
faults = []
for _ in range(8):
    training.step(training.prepared.train_rows)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(int(np.median(np.diff(faults)[2:])))  # the heap may still grow in one of them
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has its own ways")
def test_a_step_uses_the_memory_of_the_one_before():
    """Given back to the system and taken anew, the pages of a large batch cost as much time as the arithmetic."""
    told = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    # Activations of the first two blocks alone are 16 x 1024 x 784 floats: 12,544 pages.
    assert int(told.stdout) < 2000
