"""A rank that fails makes every rank raise, and none of them waits: each call must answer within the pool's timeout."""

import pytest
import torch
import torch.distributed as dist

from hypersimplex.torch import distributed
from hypersimplex.torch.loss import hypersimplex_loss
from tests.torch.ranks import ranks

GOOD = (torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2]), {})


def attempt(group, calls):
    """The messages of a call that fails, and the loss of a good one after it: the ranks are still in step."""
    logits, target, arguments = calls[dist.get_rank(group)]
    try:
        hypersimplex_loss(logits, target, **arguments, group=group)
        message = None
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    logits, target, _ = GOOD
    return message, hypersimplex_loss(logits, target, group=group)


def messages(*calls):
    answers = ranks.run(len(calls), attempt, calls, timeout=60)
    logits, target, _ = GOOD
    expected = hypersimplex_loss(logits.repeat(len(calls), 1), target.repeat(len(calls)))
    for _, loss in answers:
        torch.testing.assert_close(loss, expected)
    return [message for message, _ in answers]


LOGITS, TARGET, _ = GOOD
ONE_RANK = [
    ((LOGITS, TARGET + 2, {}), "ValueError: target must be between 0 and 2 or ignore_index, got 3"),
    ((LOGITS, TARGET[:4], {}), "ValueError: target must have the shape of input (6, 3), or that shape without"),
    ((LOGITS.long(), TARGET, {}), "TypeError: input must be floating point, got torch.int64"),
    ((LOGITS, TARGET.float(), {}), "TypeError: target must be integer where it holds class indices"),
    ((LOGITS, TARGET, {"weight": torch.ones(4)}), "ValueError: weight must be a number or have shape (3,), got"),
    ((LOGITS, TARGET, {"prior": 1.5}), "ValueError: prior must be between 0 and 1, got 1.5"),
    ((LOGITS, TARGET, {"reduction": "max"}), "ValueError: reduction must be 'none', 'mean' or 'sum', got 'max'"),
    ((LOGITS, TARGET, {"k": 1.0, "prior": 0.5}), "ValueError: k and prior must not both be given"),
    ((None, TARGET, {}), "TypeError: input must be a tensor, got NoneType"),
]


@pytest.mark.parametrize(("bad", "says"), ONE_RANK, ids=[says.split(": ")[-1][:24] for _, says in ONE_RANK])
def test_one_rank_fails(bad, says):
    got = messages(GOOD, GOOD, bad)
    assert got[:2] == [f"RuntimeError: rank 2 failed: {got[2]}"] * 2
    assert got[2].startswith(says)


def test_two_ranks_fail_each_for_its_own_reason():
    got = messages((LOGITS, TARGET + 5, {}), GOOD, (LOGITS, TARGET[:4], {}))
    assert "got 5" in got[0]
    assert got[1].startswith("RuntimeError: rank 0 failed: ValueError: target must be between")
    assert "shape" in got[2]


def test_a_long_message_in_any_alphabet_arrives():
    got = messages(GOOD, (LOGITS, TARGET, {"reduction": "größer als jede Summe " * 40}))
    assert got[0].startswith("RuntimeError: rank 1 failed: ValueError: reduction must be")


DISAGREEING = [
    ((LOGITS[:, :2], TARGET % 2, {}), "input must have the same number of classes on every rank, got [3, 2]"),
    ((LOGITS.double(), TARGET, {}), "input must have the same dtype on every rank, got ['torch.float32', 'torch.f"),
    ((LOGITS, torch.zeros(6, 3), {}), "target must be of the same kind on every rank, got ['class indices', 'dense']"),
    ((LOGITS, TARGET, {"tau": 2.0}), "weight, ignore_index, reduction, k, prior and tau must be the same on every"),
    ((LOGITS, TARGET, {"reduction": "sum"}), "weight, ignore_index, reduction, k, prior and tau must be the same"),
]


@pytest.mark.parametrize(("other", "says"), DISAGREEING, ids=["classes", "dtype", "kind", "tau", "reduction"])
def test_ranks_that_do_not_fit_together(other, says):
    for message in messages(GOOD, other):
        assert message.startswith(f"ValueError: {says}")


@pytest.mark.parametrize("way", ["gather", "search"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"k": 13.0}, "k must be between 0 and 12 (the number of samples), got 13"),
        ({"tau": 0.0}, "tau must be positive, got 0.0"),
    ],
)
def test_numbers_that_suit_no_rank(arguments, says, way):
    for message in ranks.run(2, with_way, way, arguments):
        assert says in message


def with_way(group, way, arguments):
    with distributed.forced(way), pytest.raises(ValueError, match=" ") as caught:
        hypersimplex_loss(LOGITS, TARGET, **arguments, group=group)
    return str(caught.value)


def test_there_is_no_second_derivative():
    for way in ("gather", "search"):
        ranks.run(2, twice, way)


def twice(group, way):
    logits = LOGITS.clone().requires_grad_()
    with distributed.forced(way):
        loss = hypersimplex_loss(logits, TARGET, group=group)
    with pytest.raises(RuntimeError, match="create_graph=True is not possible"):
        torch.autograd.grad(loss, logits, create_graph=True)


def test_groups_that_are_none():
    with pytest.raises(RuntimeError, match=r"call torch\.distributed\.init_process_group first"):
        hypersimplex_loss(LOGITS, TARGET, group=True)
    ranks.run(4, wrong_groups)


def wrong_groups(group):
    for wrong in (False, 3, "gloo"):
        with pytest.raises(TypeError, match="group must be a process group, or True for the default one, got "):
            hypersimplex_loss(LOGITS, TARGET, group=wrong)
    pair = dist.new_group([0, 1])
    if dist.get_rank() > 1:
        with pytest.raises((TypeError, ValueError), match="group must "):
            hypersimplex_loss(LOGITS, TARGET, group=pair)
