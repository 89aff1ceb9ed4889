"""One's own loss by `module:function`, and losses of two phases."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hypersimplex.torch import threshold
from hypersimplex_study import own_losses
from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load_cached
from hypersimplex_study.engines import Processes
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime, Training
from test_cli import call
from trainings import ONE, numbers, run

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = """
import torch
from torch.nn import functional as F

class Loss(torch.nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target)

class First(Loss):
    def predict(self, logits):
        return torch.zeros(len(logits), dtype=torch.long)

class Learned(Loss):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

class Wide(Loss):
    def forward(self, logits, target):
        return logits.sum(1)

def number():
    return 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("mine", None)


def config_of(name, **changes):
    return RunConfig(loss=name, code=own_losses.code_of(name), epochs=2, batch_size=256, width=16, **changes)


def test_it_trains_and_decides_as_the_same_loss_within(module, tmp_path):
    own, known = config_of("mine:Loss"), RunConfig(epochs=2, batch_size=256, width=16)
    with Store(tmp_path / "s.sqlite") as store:
        run(store, own, known)
        assert numbers(store, own) == numbers(store, known)


def test_processes_load_it_too(module, tmp_path):
    own = config_of("mine:Loss")
    with Store(tmp_path / "a.sqlite") as first, Store(tmp_path / "b.sqlite") as second:
        run(first, own)
        second.add_runs([own])
        Processes(1).run(second, [own], ONE, lambda *_: None)
        assert numbers(second, own) == numbers(first, own)


def test_its_own_decision_is_used_and_plain_argmax_stands_beside_it(module, tmp_path):
    own = config_of("mine:First")
    with Store(tmp_path / "s.sqlite") as store:
        run(store, own)
        last = store.epochs(own.key())[-1]
    assert last.one_class == 1.0
    assert last.test_accuracy < 0.2 < last.test_argmax


def test_other_code_is_another_loss_and_never_in_one_store(module, tmp_path):
    words = ["--loss", "mine:Loss", "--loss", "hypersimplex", "--epochs", "1", "--seed", "0", "--threads", "1"]
    words += ["--width", "8", "--quiet", "--store", tmp_path / "s.sqlite"]
    call("study", "run", *words)
    before = own_losses.code_of("mine:Loss")
    (module / "mine.py").write_text(PLAIN + "\n# changed\n")
    assert own_losses.code_of("mine:Loss") != before
    output = call("study", "run", *words, code=1)
    assert f"loss mine:Loss has other code ({own_losses.code_of('mine:Loss')}) than the runs in" in output
    assert before in output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine:nothing", "loss 'mine:nothing' cannot be imported (AttributeError"),
        ("nowhere_at_all:make", "cannot be imported (ModuleNotFoundError"),
        ("mine:number", "loss mine:number must return a torch.nn.Module, got int"),
        ("mine:Learned", "loss mine:Learned must have no parameters"),
        ("mine:Wide", "loss mine:Wide fails on logits (4, 10) (RuntimeError"),
    ],
)
def test_what_cannot_be_trained_is_said_before_the_first_run(module, tmp_path, name, message):
    store = tmp_path / "new" / "s.sqlite"
    output = call("study", "run", "--loss", name, "--threads", "1", "--store", store, code=1)
    assert message in output
    assert not store.exists()


def test_the_example_has_the_gradient_it_says(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import logistic_loss

    logits = torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target = torch.arange(40) % 4
    for tau in (0.3, 2.0):
        loss = logistic_loss.LogisticLoss(tau)
        assert torch.autograd.gradcheck(lambda x, loss=loss: loss(x, target), logits)
        (found,) = torch.autograd.grad(loss(logits, target), logits)
        y = torch.sigmoid((logits - threshold(logits.detach(), 10, tau, 0, curve="logistic")) / tau)
        torch.testing.assert_close(y.sum(0), torch.full((4,), 10.0, dtype=torch.float64))
        t = torch.nn.functional.one_hot(target, 4)
        torch.testing.assert_close(found * 40, (y - t).detach() / tau)


def make(config):
    return Training(config, load_cached("digits", None, None), Runtime(threads=1))


def test_two_phases_are_the_one_loss_and_then_the_other():
    both = RunConfig(loss="hypersimplex-first-half", epochs=4, batch_size=256, width=16, lr=1e-2)
    first, whole = make(both), make(replace(both, loss="hypersimplex"))
    for _ in range(2):
        a, b = first.run_epoch(), whole.run_epoch()
        assert (a.train_loss, a.test_accuracy) == (b.train_loss, b.test_accuracy)
    a, b = first.run_epoch(), whole.run_epoch()
    assert a.train_loss > b.train_loss  # log loss of ten classes, and a mean of squares
    assert first.loss.second.scale != 1
    assert both.tau == 1.5


@pytest.mark.parametrize("at", [1, 2, 3])
def test_two_phases_resume_in_the_same_bits(at):
    config = RunConfig(loss="hypersimplex-first-half", epochs=4, batch_size=256, width=16)
    whole, part = make(config), make(config)
    for _ in range(4):
        whole.run_epoch()
    for _ in range(at):
        part.run_epoch()
    rest = make(config)
    rest.restore(part.snapshot())
    while not rest.finished:
        rest.run_epoch()
    assert [(e.train_loss, e.test_accuracy) for e in rest.history] == [
        (e.train_loss, e.test_accuracy) for e in whole.history
    ]


def test_a_quarter_is_a_quarter_of_the_steps():
    config = RunConfig(loss="hypersimplex-first-quarter", epochs=1, batch_size=162, width=16)  # eight steps
    training = make(config)
    kinds = []
    step = training.step
    training.step = lambda rows: kinds.append(bool(training.loss.later)) or step(rows)
    training.run_epoch()
    assert kinds == [False] * 2 + [True] * 6
