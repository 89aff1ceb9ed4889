"""What else than logits is learned over many ranks, each by itself; and ignored samples where classes are separated."""

import pytest
import torch

from hypersimplex.torch import distributed
from hypersimplex.torch.loss import compute, hypersimplex_loss
from tests.torch.many_ranks import FEATURES, WAYS, Model, numbers_of, problem, settings, taken
from tests.torch.ranks import ranks

LEARNED = {"weight": 1.5, "k": 3.5, "prior": 0.2, "tau": 0.8, "target": None}


def gradient_of(name, x, y, w, group=None):
    """To one number per class, or to the soft targets, with everything else as it is."""
    leaf = (y if name == "target" else torch.full((5,), LEARNED[name], dtype=torch.float64)).clone().requires_grad_()
    given = {} if name == "target" else {name: leaf}
    hypersimplex_loss(Model(w)(x), leaf if name == "target" else y, group=group, **given).backward()
    return leaf.grad


def gradient_on_rank(group, name, x, y, w):
    rank = torch.distributed.get_rank(group)
    with distributed.forced("search"):  # as for a large batch: what is learned needs the other way
        return gradient_of(name, x.split([9, 14])[rank], y.split([9, 14])[rank], w, group)


@pytest.mark.parametrize("name", LEARNED)
def test_each_argument_learned_alone_has_the_gradient_of_one_process(name):
    x, y, w = problem("soft" if name == "target" else "index")
    expected = gradient_of(name, x, y, w)
    assert expected.abs().max() > 1e-3
    found = ranks.run(2, gradient_on_rank, name, x, y, w)
    if name == "target":  # of which every rank has its own part, averaged as the logits are
        torch.testing.assert_close(torch.cat(found) / 2, expected, rtol=1e-12, atol=1e-14)
    else:
        for gradient in found:
            torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)


def threshold_on_rank(group, way, split, logits, y):
    rank = torch.distributed.get_rank(group)
    with taken(way):
        return numbers_of(compute(logits.split(split)[rank], y.split(split)[rank], settings(), group))[0]


@pytest.mark.parametrize("way", WAYS)
def test_an_ignored_sample_does_not_end_the_interval_of_separated_classes(way):
    """Its logits lie inside of every class's gap, on one rank and on the other."""
    y = torch.arange(FEATURES).repeat(4)
    logits = 6 * torch.eye(FEATURES, dtype=torch.float64)[y] + 0.01 * torch.arange(24.0, dtype=torch.float64)[:, None]
    for row, inside in ((2, 1.0), (9, 4.5), (15, 1.5), (22, 5.0)):
        y[row], logits[row] = -100, inside
    expected = numbers_of(compute(logits, y, settings()))[0]
    kept = y >= 0
    torch.testing.assert_close(expected, numbers_of(compute(logits[kept], y[kept], settings()))[0])
    for found in ranks.run(2, threshold_on_rank, way, [10, 14], logits, y):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
