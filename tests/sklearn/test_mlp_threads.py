"""Small networks of HyperSimplexMLPClassifier train on one thread, and the caller's setting comes back."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hypersimplex.sklearn import HyperSimplexMLPClassifier
from hypersimplex.sklearn import _training as training


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def seen(monkeypatch, **settings):
    """The numbers of threads that the losses of the batches were computed with."""
    found, loss = set(), training.Training._loss

    def look(self, *arguments):
        found.add(torch.get_num_threads())
        return loss(self, *arguments)

    monkeypatch.setattr(training.Training, "_loss", look)
    x = np.random.default_rng(0).normal(size=(400, 20))
    HyperSimplexMLPClassifier(max_iter=1, **settings).fit(x, x[:, 0] > 0)
    return found


@pytest.mark.parametrize(("hidden", "batch", "expected"), [((16,), 100, {1}), ((1000,), 100, {1}), ((5000,), 100, {2})])
def test_the_size_of_a_batch_decides(monkeypatch, threads, hidden, batch, expected):
    assert seen(monkeypatch, hidden_layer_sizes=hidden, batch_size=batch) == expected
    assert torch.get_num_threads() == 2


def test_an_error_brings_the_threads_back(monkeypatch, threads):
    def fail(self, *arguments):
        raise RuntimeError("no loss")

    monkeypatch.setattr(training.Training, "_loss", fail)
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(RuntimeError, match="no loss"):
        HyperSimplexMLPClassifier(max_iter=1).fit(x, x[:, 0] > 0)
    assert torch.get_num_threads() == 2
