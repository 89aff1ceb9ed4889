"""One problem for one process and for many ranks: the numbers of both must be the same."""

from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hypersimplex.torch import backends, distributed
from hypersimplex.torch.loss import Settings, compute
from tests.torch.ranks import ranks

WAYS = ["gather", "search", "plain search"]
SPLITS = {1: [23], 2: [16, 7], 3: [9, 0, 14], 4: [6, 6, 6, 5]}
FEATURES = 6


def settings(**arguments):
    defaults = {"weight": None, "ignore_index": -100, "reduction": "mean", "k": None, "prior": None, "tau": 1.0}
    return Settings(**{**defaults, **arguments})


def problem(kind="index", classes=5, positions=(), dtype=torch.float64, samples=23, seed=0):
    """Inputs, targets and the weights of a linear model that makes logits of them."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, *positions, FEATURES, dtype=dtype, generator=rng)
    w = torch.randn(classes, FEATURES, dtype=dtype, generator=rng)
    if kind == "index":
        y = torch.randint(classes, (samples, *positions), generator=rng)
    elif kind == "multi-label":
        y = (torch.rand(samples, classes, *positions, generator=rng) < 0.3).to(dtype)
    else:
        y = torch.rand(samples, classes, *positions, dtype=dtype, generator=rng).softmax(1)
    return x, y, w


class Model(nn.Module):
    """Linear in the features; the classes are dim 1 of the logits."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(w.clone())

    def forward(self, x):
        return (x @ self.w.T).movedim(-1, 1)


def alone(x, y, w, **arguments):
    model = Model(w)
    outcome = compute(model(x), y, settings(**arguments))
    outcome.loss.backward()
    return outcome.loss.detach(), model.w.grad, *numbers_of(outcome)


def numbers_of(outcome):
    """Thresholds, k and the samples that count."""
    threshold, k = outcome.mu_and_k
    return threshold, k, int(outcome.samples)


@contextmanager
def taken(way):
    """Take this way, and see to it that no other one was taken in the end."""
    gathered, calls = distributed._gathered, []
    distributed._gathered = lambda *arguments: calls.append(1) or gathered(*arguments)
    try:
        plain = backends.plain_only() if way == "plain search" else nullcontext()
        with plain, distributed.forced("gather" if way == "gather" else "search"):
            yield
        assert bool(calls) == (way in ("gather", "search given up")), calls
    finally:
        distributed._gathered = gathered


def on_rank(group, way, split, x, y, w, arguments):
    rank = torch.distributed.get_rank(group)
    x, y = x.split(split)[rank], y.split(split)[rank]
    model = DistributedDataParallel(Model(w), process_group=group)
    with taken(way):
        outcome = compute(model(x), y, settings(**arguments), group)
    outcome.loss.backward()
    return outcome.loss.detach(), model.module.w.grad, *numbers_of(outcome)


def check(way, split, x, y, w, tolerance=1e-12, **arguments):
    loss, grad, threshold, k, samples = alone(x, y, w, **arguments)
    assert grad.abs().max() > 1e-3, "an expected zero proves nothing"
    answers = ranks.run(len(split), on_rank, way, split, x, y, w, arguments)
    for answer in answers:
        torch.testing.assert_close(answer[0], loss, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(answer[1], grad, rtol=tolerance, atol=tolerance * float(grad.abs().max()))
        torch.testing.assert_close(answer[2].double(), threshold.double(), rtol=tolerance, atol=10 * tolerance)
        torch.testing.assert_close(answer[3].double(), k.double(), rtol=1e-12, atol=0)
        assert answer[4] == samples
        assert torch.equal(answer[2], answers[0][2]), "every rank ends with the same thresholds"
