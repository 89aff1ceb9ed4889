"""Slices that lie over ranks: values and gradients are those of one process that holds the joined slices."""

import pytest
import torch
import torch.distributed as dist

from hypersimplex._curves import CURVES
from hypersimplex.torch import binary_argmax, soft_topk, threshold
from tests.torch.rank_slices import DOUBLE, check, learned
from tests.torch.ranks import ranks

SPLITS = [[23], [16, 7], [9, 0, 14], [0, 22, 1, 0]]
every_curve = pytest.mark.parametrize("curve", CURVES)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def normal(*shape, dtype=DOUBLE, seed=0):
    return torch.randn(shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("split", "curve"), [*((split, "ramp") for split in SPLITS), *((SPLITS[2], curve) for curve in CURVES[1:])], ids=str
)
def test_equals_one_process(split, curve, dtype):
    k, tau = torch.tensor([0.5, 3, 11.25, 22.9]), torch.tensor([0.3, 1, 2, 1.5])
    expected = check(split, normal(4, 23, dtype=dtype), k, tau, tolerance=TOLERANCE[dtype], curve=curve)
    assert all(t.abs().max() > 1e-3 for t in expected), "an expected zero proves nothing"


@pytest.mark.parametrize(("k", "tau"), [(3, 0.5), (2.5, 4.0), (17, 0.2), (torch.tensor(4.0), torch.tensor(1.5))])
@pytest.mark.parametrize("shape", [(23,), (2, 3, 23)], ids=str)
def test_one_number_for_all_slices(shape, k, tau):
    check([9, 0, 14], normal(*shape), k, tau)


@pytest.mark.parametrize("dim", [0, 1, 2, -2, -3])
def test_every_dim(dim):
    x = normal(7, 7, 7)
    k = torch.linspace(0.5, 6.5, 7)
    check([3, 0, 4], x, k, 0.7, dim)
    check([3, 4], x.transpose(0, 2), k[:, None].expand(7, 7), 0.7, dim)


@every_curve
@pytest.mark.parametrize("shift", [1e6, -3e9])
def test_far_entries_keep_their_digits(shift, curve):
    x = (64 * normal(3, 23)).round() / 64
    near, far = (check([9, 0, 14], x + by, 4.5, 0.7, tolerance=1e-8, curve=curve) for by in (0, shift))
    torch.testing.assert_close(near[0], far[0], rtol=0, atol=1e-6)


@every_curve
def test_many_slices_and_many_entries(curve):
    check([700, 0, 1300], normal(40, 2000), torch.linspace(1, 1999, 40), 0.3, curve=curve)
    check([700, 0, 1300], normal(2000, 17, dtype=torch.float32), 64, 0.05, dim=0, tolerance=2e-5, curve=curve)


INF, NAN = torch.inf, torch.nan
EDGES = {  # entries, k; the ranks have 2, 0 and 3 of them
    "k = 0": ([0.1, 1.6, 1.0, -0.3, 0.7], 0),
    "k = n": ([0.1, 1.6, 1.0, -0.3, 0.7], 5),
    "ties": ([1.0, 1.0, 1.0, 1.0, 0.0], 2),
    "all the same": ([1.0, 1.0, 1.0, 1.0, 1.0], 2),
    "an interval whose ends lie on two ranks": ([5.0, 0.0, 7.0, -1.0, 0.5], 2),
    "an interval on one rank": ([0.0, 0.0, 7.0, 5.0, 0.5], 2),
    "an interval as wide as a point": ([1.0, 0.0, 2.0, -1.0, 0.0], 2),
    "masked on one rank": ([-INF, -INF, 1.0, 0.7, 0.5], 2),
    "masked on all": ([-INF, 0.3, 1.0, 0.7, -INF], 1.5),
    "all that is left": ([-INF, 0.3, 1.0, 0.7, -INF], 3),
    "one entry left": ([-INF, 0.3, -INF, -INF, -INF], 0.5),
    "infinite on one rank": ([INF, 0.3, 1.0, 0.7, 0.9], 2),
    "infinite on two": ([INF, 0.3, INF, 0.7, 0.9], 2.5),
    "as many as k": ([INF, 0.3, INF, 0.7, 0.9], 2),
    "more than k": ([INF, 0.3, INF, 0.7, INF], 2),
    "both": ([INF, -INF, INF, 0.7, -INF], 2.25),
    "all that is left, and infinite": ([INF, -INF, 0.2, 0.7, -INF], 3),
    "nothing finite": ([INF, -INF, INF, -INF, INF], 3),
    "nothing finite, shared": ([INF, -INF, INF, -INF, INF], 2),
    "all infinite": ([INF] * 5, 5),
    "NaN": ([0.1, 1.6, 1.0, NAN, 0.7], 2),
    "NaN and infinite": ([INF, 1.6, 1.0, NAN, -INF], 2),
    "all NaN": ([NAN] * 5, 2),
    "far apart": ([1e300, -1e300, 0.3, 0.4, 1e-300], 2.5),
    "zeros": ([0.0, -0.0, 0.0, -0.0, 0.0], 2),
}


@every_curve
def test_edges(curve):
    """One beside the other, each of which leaves the others alone."""
    rows, k = zip(*EDGES.values(), strict=True)
    check([2, 0, 3], torch.tensor(rows, dtype=DOUBLE), torch.tensor(k), 0.5, curve=curve)


@pytest.mark.parametrize("name", ["NaN", "nothing finite", "nothing finite, shared", "all infinite", "k = n"])
def test_an_edge_by_itself(name):
    row, k = EDGES[name]
    check([2, 0, 3], torch.tensor(row, dtype=DOUBLE), k, 0.5)


def test_slices_without_entries_and_no_slices():
    check([0, 0], torch.empty(3, 0, dtype=DOUBLE), 0)
    check([2, 3], torch.empty(0, 5, dtype=DOUBLE), 2)


CHOICES = {
    "ordinary": ([0.1, 1.6, 1.0, -0.3, 0.7, 0.2], 2),
    "ties": ([1.0, 0.0, 1.0, 1.0, 2.0, 1.0], 3),
    "ties on the first rank alone": ([1.0, 1.0, 0.0, 2.0, 0.0, 3.0], 3),
    "all the same": ([0.5] * 6, 4),
    "zeros of both signs": ([0.0, -0.0, 0.0, -0.0, -1.0, 0.0], 3),
    "negative": ([-3.0, -1.0, -2.0, -5.0, -1.0, -9.0], 2),
    "infinite": ([INF, -1.0, INF, 2.0, INF, -INF], 2),
    "masked": ([-INF, 0.0, -INF, 2.0, -INF, -INF], 2),
    "none": ([0.1, 1.6, 1.0, -0.3, 0.7, 0.2], 0),
    "all": ([0.1, 1.6, 1.0, -0.3, 0.7, 0.2], 6),
    "NaN": ([0.1, 1.6, NAN, -0.3, 0.7, 0.2], 2),
    "tiny": ([1e-300, 5e-324, 0.0, 2e-300, -5e-324, 1e-310], 3),
}


def chosen(group, split, x, k, dim):
    return binary_argmax(x.split(split, dim)[dist.get_rank(group)], k, dim, group=group)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_exactly_k_ones(dtype):
    """Of equal entries that of the lower rank is chosen, then that of the lower index."""
    rows, k = zip(*CHOICES.values(), strict=True)
    x, k = torch.tensor(rows, dtype=DOUBLE).to(dtype), torch.tensor(k)
    expected = binary_argmax(x, k)
    for split in ([2, 0, 4], [0, 5, 1], [6, 0]):
        got = torch.cat(ranks.run(len(split), chosen, split, x, k, -1), -1)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_exactly_k_ones_of_many(dtype):
    x, k = normal(3000, 4, dtype=dtype), torch.tensor([1, 7, 1500, 2999])
    got = torch.cat(ranks.run(3, chosen, [1000, 1999, 1], x, k, 0))
    assert torch.equal(got, binary_argmax(x, k, 0))


def hard_on_rank(group, split, x, v, k):
    rank = dist.get_rank(group)
    x, v, k = x.split(split, -1)[rank].clone().requires_grad_(), v.split(split, -1)[rank], learned(k)
    y = soft_topk(x, k, 0.5, hard=True, group=group)
    (y * v).sum().backward()
    return y.detach(), x.grad, k.grad


def test_hard_has_the_values_of_the_choice_and_the_gradients_of_the_operator():
    x, v, k = normal(3, 23), normal(3, 23, seed=1), torch.tensor([2.0, 0.0, 9.0])
    leaf, of_k = x.clone().requires_grad_(), learned(k)
    y = soft_topk(leaf, of_k, 0.5, hard=True)
    (y * v).sum().backward()
    assert leaf.grad.abs().max() > 0.1
    parts = ranks.run(3, hard_on_rank, [9, 0, 14], x, v, k)
    torch.testing.assert_close(torch.cat([part[0] for part in parts], -1), y.detach())
    torch.testing.assert_close(torch.cat([part[1] for part in parts], -1), leaf.grad)
    for part in parts:
        torch.testing.assert_close(part[2], of_k.grad)


def without_gradients(group, split, x):
    x = x.split(split, -1)[dist.get_rank(group)].clone().requires_grad_()
    with torch.no_grad():
        return soft_topk(x, 3, group=group), threshold(x, 3, group=group)


def test_results_without_gradients():
    x = normal(2, 23)
    answers = ranks.run(3, without_gradients, [9, 0, 14], x)
    torch.testing.assert_close(torch.cat([y for y, _ in answers], -1), soft_topk(x, 3))
    for y, mu in answers:
        assert not y.requires_grad
        assert not mu.requires_grad
        torch.testing.assert_close(mu, threshold(x, 3))
