"""The loss over many ranks equals the loss of one process with the joined batch, for the value and for every gradient.

Ranks are processes over gloo (see ranks.py); expected numbers come from one process that never heard of groups.
"""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from hypersimplex.torch import HyperSimplexLoss, distributed
from hypersimplex.torch.loss import compute, hypersimplex_loss
from tests.torch.many_ranks import (
    FEATURES,
    SPLITS,
    WAYS,
    Model,
    alone,
    check,
    numbers_of,
    on_rank,
    problem,
    settings,
    taken,
)
from tests.torch.ranks import ranks


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_equals_one_process(size, way):
    """Uneven batches, for three ranks with an empty one, for four with whole batches and a smaller last one."""
    check(way, SPLITS[size], *problem())
    check(way, SPLITS[size], *problem(dtype=torch.float32), tolerance=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "arguments",
    [
        {"reduction": "sum", "tau": 0.3},
        {"weight": torch.tensor([0.5, 2, 1, 0, 3])},
        {"k": torch.tensor([3, 4.5, 6, 0, 23])},
        {"weight": torch.tensor([0.5, 2, 1, 0, 3]), "k": torch.tensor([3, 4.5, 6, 0, 23])},
        {"prior": 0.2},
        {"prior": torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0]), "tau": torch.tensor([0.2, 1, 5, 1, 1])},
        {"tau": 0.25},
        {"tau": 8.0},
    ],
    ids=lambda arguments: "-".join(arguments),
)
@pytest.mark.parametrize("kind", ["index", "multi-label", "soft"])
def test_every_argument(kind, arguments, way):
    check(way, [9, 14], *problem(kind), **arguments)


@pytest.mark.parametrize("way", WAYS)
def test_positions_and_larger_batches(way):
    check(way, [3, 0, 2], *problem(positions=(4, 2), samples=5))
    check(way, [3, 2], *problem("soft", positions=(7,), samples=5))
    check(way, [700, 1300, 1000], *problem(classes=40, samples=3000))
    check(way, [700, 1300, 1000], *problem(classes=17, samples=3000, dtype=torch.float32), tolerance=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_ignored_samples_and_absent_classes(way):
    x, y, w = problem()
    y[y == 3] = 1  # absent everywhere
    y[:9][y[:9] == 2] = 0  # absent on the first rank
    y[4:13] = -100  # ignored on both
    check(way, [9, 14], x, y, w)
    y[:9] = -100  # nothing but ignored samples on the first rank
    check(way, [9, 14], x, y, w)
    check(way, [9, 14], x, torch.where(y < 0, 7, y), w, ignore_index=7)


@pytest.mark.parametrize("way", WAYS)
def test_separated_classes_have_the_middle_threshold(way):
    """Where every entry is 0 or 1 an interval of thresholds would do; its ends lie on different ranks."""
    y = torch.arange(FEATURES).repeat(4)
    x = torch.eye(FEATURES, dtype=torch.float64)[y] + 0.003 * torch.arange(24.0, dtype=torch.float64)[:, None]
    w = 3 * torch.eye(FEATURES, dtype=torch.float64)
    expected = compute(Model(w)(x), y, settings())
    assert expected.loss == 0
    for answer in ranks.run(3, on_rank, way, [10, 10, 4], x, y, w, {}):
        assert float(answer[0]) == 0
        assert not answer[1].any()
        torch.testing.assert_close(answer[2], numbers_of(expected)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_ties_and_distant_logits_keep_their_digits(shift, way):
    x, y, w = problem()
    x = (2 * x).round() / 2
    logits = (2 * Model(w)(x)).detach().round() + shift
    got = ranks.run(2, losses_of_logits, way, [10, 13], logits, y, {"tau": 3.0})
    mine = logits.requires_grad_()
    expected = compute(mine, y, settings(tau=3.0))
    expected.loss.backward()
    for loss, _, threshold in got:
        torch.testing.assert_close(loss, expected.loss.detach(), rtol=1e-12, atol=0)
        torch.testing.assert_close(threshold, numbers_of(expected)[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(torch.cat([g for _, g, _ in got]) / 2, mine.grad, rtol=1e-11, atol=1e-12)


def losses_of_logits(group, way, split, logits, y, arguments):
    rank = torch.distributed.get_rank(group)
    logits, y = logits.detach().split(split)[rank].requires_grad_(), y.split(split)[rank]
    with taken(way):
        outcome = compute(logits, y, settings(**arguments), group)
    if outcome.loss.requires_grad:
        outcome.loss.sum().backward()
    return outcome.loss.detach(), logits.grad, numbers_of(outcome)[0]


def test_far_logits_are_searched_as_far_as_their_digits_go():
    """At 2^49 they lie 1/8 apart: a rank's own threshold is no more exact, and the bracket must be as wide."""
    x, y, w = problem()
    logits = (2 * Model(w)((2 * x).round() / 2)).detach().round() + 2.0**49
    expected = compute(logits, y, settings(tau=3.0))
    for loss, _, threshold in ranks.run(2, losses_of_logits, "search", [2, 21], logits, y, {"tau": 3.0}):
        torch.testing.assert_close(loss, expected.loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(threshold, numbers_of(expected)[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", ["index", "soft"])
def test_label_smoothing_needs_all_labels(kind):
    check("search given up", [9, 14], *problem(kind), label_smoothing=0.2)


@pytest.mark.parametrize("odd", [torch.inf, -torch.inf, torch.nan])
def test_logits_that_are_not_finite(odd):
    x, y, w = problem()
    logits = Model(w)(x).detach()
    logits[3, 2] = odd
    mine = logits.clone().requires_grad_()
    expected = compute(mine, y, settings())
    expected.loss.backward()
    got = ranks.run(2, losses_of_logits, "search given up", [10, 13], logits, y, {})
    for loss, _, threshold in got:
        torch.testing.assert_close(loss, expected.loss.detach(), equal_nan=True)
        torch.testing.assert_close(threshold, numbers_of(expected)[0], equal_nan=True)
    torch.testing.assert_close(torch.cat([g for _, g, _ in got]) / 2, mine.grad, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("way", WAYS)
def test_half_types(way, dtype):
    x, y, w = problem(dtype=torch.float32)
    logits = Model(w)(x).detach().to(dtype)
    mine = logits.clone().requires_grad_()
    expected = compute(mine, y, settings())
    expected.loss.backward()
    got = ranks.run(2, losses_of_logits, way, [10, 13], logits, y, {})
    for loss, grad, _ in got:
        assert loss.dtype == expected.loss.dtype
        assert grad.dtype == dtype
        torch.testing.assert_close(loss, expected.loss.detach())
    torch.testing.assert_close(torch.cat([g for _, g, _ in got]) / 2, mine.grad, rtol=0.02, atol=1e-4)


def test_nothing_but_ignored_samples():
    x, y, w = problem()
    expected = compute(Model(w)(x).detach(), torch.full_like(y, -100), settings()).loss
    got = ranks.run(
        2, losses_of_logits, "search given up", [10, 13], Model(w)(x).detach(), torch.full_like(y, -100), {}
    )
    for loss, grad, _ in got:
        torch.testing.assert_close(loss, expected, equal_nan=True)
        assert not grad.any()


def weighted_losses(group, split, x, y, w, v):
    rank = torch.distributed.get_rank(group)
    x, y, v = (t.split(split)[rank] for t in (x, y, v))
    model = DistributedDataParallel(Model(w), process_group=group)
    losses = hypersimplex_loss(model(x), y, reduction="none", group=group)
    (losses * v).sum().backward()
    return losses.detach(), model.module.w.grad


@pytest.mark.parametrize("split", [[23], [9, 14], [9, 0, 14]])
def test_a_loss_for_every_sample(split):
    """The ranks' objectives are averaged by DDP, and each one depends on all ranks' logits."""
    x, y, w = problem()
    v = torch.rand(23, dtype=torch.float64)
    model = Model(w)
    losses = hypersimplex_loss(model(x), y, reduction="none")
    ((losses * v).sum() / len(split)).backward()
    got = ranks.run(len(split), weighted_losses, split, x, y, w, v)
    torch.testing.assert_close(torch.cat([each for each, _ in got]), losses.detach(), rtol=1e-12, atol=1e-12)
    for _, grad in got:
        torch.testing.assert_close(grad, model.w.grad, rtol=1e-12, atol=1e-12)


def learned(group, split, x, y, w):
    rank = torch.distributed.get_rank(group)
    x, y = x.split(split)[rank], y.split(split)[rank]
    leaves = [torch.full((5,), value, dtype=torch.float64, requires_grad=True) for value in (0.8, 1.5, 3.5)]
    tau, weight, k = leaves
    hypersimplex_loss(Model(w)(x), y, weight, tau=tau, k=k, group=group).backward()
    return [leaf.grad for leaf in leaves]


def test_gradients_to_the_numbers_per_class_are_whole_on_every_rank():
    x, y, w = problem()
    leaves = [torch.full((5,), value, dtype=torch.float64, requires_grad=True) for value in (0.8, 1.5, 3.5)]
    hypersimplex_loss(Model(w)(x), y, leaves[1], tau=leaves[0], k=leaves[2]).backward()
    for grads in ranks.run(2, learned, [9, 14], x, y, w):
        for grad, leaf in zip(grads, leaves, strict=True):
            assert leaf.grad.abs().max() > 1e-3
            torch.testing.assert_close(grad, leaf.grad, rtol=1e-12, atol=1e-14)


def default_group(group, x, y, w):
    rank = torch.distributed.get_rank()
    return hypersimplex_loss(Model(w)(x.split(SPLITS[4])[rank]), y.split(SPLITS[4])[rank], group=True).detach()


def test_true_means_the_default_group():
    x, y, w = problem()
    for loss in ranks.run(4, default_group, x, y, w):
        torch.testing.assert_close(loss, hypersimplex_loss(Model(w)(x), y).detach(), rtol=1e-12, atol=0)


def test_the_mean_of_local_losses_is_another_loss():
    """Why any of this is needed: without the group the gradient is far off."""
    x, y, w = problem()
    grad = alone(x, y, w)[1]
    local = sum(alone(a, b, w)[1] for a, b in zip(x.split(6), y.split(6), strict=True)) / 4
    assert (local - grad).norm() > 0.2 * grad.norm()


def test_the_size_decides():
    small, large = problem(), problem(classes=900, samples=700)  # 5 MB of logits
    assert ranks.run(2, ways, small, large) == [["gather", "search"]] * 2


def ways(group, *problems):
    rank, taken = torch.distributed.get_rank(group), []
    gathered = distributed._gathered
    distributed._gathered = lambda *arguments: taken.append("gather") or gathered(*arguments)
    for x, y, w in problems:
        before = len(taken)
        half = len(x) // 2
        hypersimplex_loss(Model(w)(x.split(len(x) - half)[rank]), y.split(len(x) - half)[rank], group=group)
        if len(taken) == before:
            taken.append("search")
    distributed._gathered = gathered
    return taken


def test_the_backward_pass_exchanges_nothing():
    x, y, w = problem()
    for way in ("gather", "search"):
        assert ranks.run(2, exchanges, way, "mean", x, y, w) == [0, 0]
    assert min(ranks.run(2, exchanges, "gather", "none", x, y, w)) > 0, "a count that is always zero proves nothing"


def exchanges(group, way, reduction, x, y, w):
    rank = torch.distributed.get_rank(group)
    x, y = x.split([9, 14])[rank], y.split([9, 14])[rank]
    with distributed.forced(way):
        loss = hypersimplex_loss(Model(w)(x), y, reduction=reduction, group=group).sum()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        loss.backward()
    return sum("c10d" in event.name or "gloo" in event.name for event in seen.events())


def module_states(group, batches, targets):
    criterion = HyperSimplexLoss(group=group)
    rank = distributed.members(group, batches[0]).rank
    criterion(batches[rank].clone().requires_grad_(), targets[rank])
    one = criterion.predict(torch.eye(5)).shape
    criterion.calibrate([batches[rank]])
    return criterion.threshold, int(criterion.multilabel), one


def test_every_rank_ends_with_the_same_state_without_targets_and_with_several_labels():
    x, y, w = problem("multi-label")
    logits = Model(w)(x).detach()
    # Only the second rank's part shows that a sample may have several labels.
    y = torch.cat([torch.eye(5, dtype=y.dtype)[torch.arange(16) % 5], y[16:]])
    got = ranks.run(2, module_states, logits.split([16, 7]), y.split([16, 7]))
    alone = HyperSimplexLoss()
    alone(logits.clone().requires_grad_(), y)
    alone.calibrate([logits])
    for threshold, multilabel, shape in got:
        torch.testing.assert_close(threshold, alone.threshold, rtol=0, atol=1e-12)
        assert (multilabel, tuple(shape)) == (1, (5, 5))
