"""The search by itself: NumPy and torch, whole or in parts, weighted, from a bracket or from nowhere."""

import numpy as np
import pytest
import torch

from hypersimplex import reference
from hypersimplex._search import ACTIVE, ACTIVE_SUM, ONES, Start, is_flat, middle, search

SLICES = 7


def problem(seed, n=203, spread=1.0, ties=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SLICES, n)) * spread
    return np.round(x * 2) / 2 if ties else x, rng.uniform(0.1, n - 0.1, SLICES)


class Sums:
    """The three sums of some entries, and a count of the passes."""

    def __init__(self, xp, x, tau, weight=None):
        self.xp, self.x, self.tau, self.weight, self.passes = xp, x, tau, weight, 0

    def __call__(self, mu, low, error):
        self.passes += 1
        t = ((self.x - mu[:, None]) - low[:, None]) / self.tau
        active, ones, w = (t > 0) & (t < 1), t >= 1, 1.0 if self.weight is None else self.weight
        rows = [self.xp.where(active, t, 0.0) * w, active * w, ones * w]
        return self.xp.stack([row.sum(1) for row in rows])


def bracket(xp, x, tau):
    values = np.asarray(x)
    lo, hi = (xp.asarray(end) for end in (values.min(1) - tau, values.max(1)))
    return Start(lo / 2 + hi / 2, lo, hi)


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("tau", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("ties", [False, True])
def test_the_sum_is_k(xp, tau, ties):
    for seed in range(10):
        x, k = problem(seed, ties=ties)
        sums = Sums(xp, xp.asarray(x), tau)
        found = search(xp, sums, xp.asarray(k), tau, bracket(xp, x, tau), 1e-14, 100, two_parts=True)
        assert bool(found.exact.all())
        np.testing.assert_allclose(np.asarray(found.mu), reference.threshold(x, k, tau), rtol=1e-11, atol=1e-11)
        assert sums.passes < 40


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_find_what_the_whole_finds_and_settled_slices_are_not_sent(parts):
    x, k = problem(3)
    own, *others = (Sums(np, piece, 0.5) for piece in np.array_split(x, parts, axis=1))
    sent, asked = [], []

    def sums(mu, low, error):
        asked.append((mu, low, ~np.isnan(mu)))
        return own(mu, low, error)

    def reduce(table):
        mu, low, some = asked[-1]
        sent.append((table.shape[1], int(some.sum())))
        return table + sum(other(mu, low, None)[:, some] for other in others)

    whole = search(np, Sums(np, x, 0.5), k, 0.5, bracket(np, x, 0.5), 1e-14, 100)
    found = search(np, sums, k, 0.5, bracket(np, x, 0.5), 1e-14, 100, reduce=reduce)
    np.testing.assert_allclose(found.mu, whole.mu, rtol=1e-12)
    sizes = [size for size, _ in sent]
    assert sizes == [size for _, size in sent] == sorted(sizes, reverse=True)
    assert sizes[-1] < SLICES


@pytest.mark.parametrize("away", [0.0, 1e3, -1e6])
def test_without_a_bracket_it_jumps_until_it_has_one(away):
    x, k = problem(4)
    nowhere = np.full(SLICES, np.inf)
    start = Start(np.zeros(SLICES) + away, -nowhere, nowhere, np.ones(SLICES))
    found = search(np, Sums(np, x, 0.5), k, 0.5, start, 1e-14, 100)
    np.testing.assert_allclose(found.mu, reference.threshold(x, k, 0.5), rtol=1e-11, atol=1e-11)


def test_a_weight_is_as_many_entries():
    x, _ = problem(5, n=50)
    w = np.random.default_rng(0).integers(0, 4, 50)
    k = 0.3 * w.sum() * np.ones(SLICES)
    found = search(np, Sums(np, x, 0.5, w), k, 0.5, bracket(np, x, 0.5), 1e-14, 100)
    copied = np.repeat(x, w, axis=1)
    np.testing.assert_allclose(found.mu, reference.threshold(copied, k, 0.5), rtol=1e-11, atol=1e-11)


def test_two_parts_have_digits_that_one_has_not():
    x, k = problem(6)
    x, tau = 1e6 + 1e-3 * x, 1e-3
    errors = []
    for two_parts in (False, True):
        sums = Sums(np, x, tau)
        found = search(np, sums, k, tau, bracket(np, x, tau), 1e-14, 100, two_parts=two_parts)
        table = sums(found.mu, found.low, None)
        errors.append((abs(table[ACTIVE_SUM] + table[ONES] - k) / table[ACTIVE]).max())
        assert sums.passes < 30
        assert found.exact.all() == two_parts
    assert errors[1] < 1e-13 < errors[0] < 1e-6


def test_it_looks_as_seldom_as_it_is_asked_to(monkeypatch):
    x, k = (torch.asarray(part) for part in problem(7))
    looks = []
    monkeypatch.setattr(torch.Tensor, "all", lambda self: looks.append(1) or torch.tensor(not bool((~self).sum())))
    sums = Sums(torch, x, 0.5)
    search(torch, sums, k, 0.5, bracket(torch, x, 0.5), 1e-14, 100, look_every=4)
    assert sums.passes == 4 * len(looks)


def test_nan_slices_settle_and_leave_the_others_alone():
    x, k = problem(8)
    start = bracket(np, x, 0.5)
    sums = Sums(np, x, 0.5)
    good = np.arange(SLICES) != 2
    found = search(np, lambda *a: np.where(good, sums(*a), np.nan), k, 0.5, start, 1e-14, 100)
    np.testing.assert_allclose(found.mu[good], reference.threshold(x[good], k[good], 0.5), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
def test_flat_and_middle(xp):
    flat = is_flat(xp, xp.asarray([0.0, 2.0, 1.0, 1e-12]), xp.asarray([0.0, 2.0, 2.0, 3.0]), 1e-9)
    assert flat.tolist() == [True, True, False, True]
    inf = float("inf")
    zero, one = xp.asarray([1.0, -inf, 1.0, -inf]), xp.asarray([4.0, 4.0, inf, inf])
    assert middle(xp, zero, one, 1.0).tolist() == [2.0, 3.0, 1.0, 0.0]
