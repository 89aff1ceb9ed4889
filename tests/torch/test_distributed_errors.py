"""A rank that fails makes every rank raise, and none of them waits: each call must answer within the pool's timeout."""

import pytest
import torch
import torch.distributed as dist

from hypersimplex.torch import HyperSimplexLoss, distributed
from hypersimplex.torch.loss import hypersimplex_loss
from tests.torch.ranks import ranks

GOOD = (torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2]), {})


def attempt(group, calls):
    """The messages of a call that fails, and the loss of a good one after it: the ranks are still in step."""
    logits, target, arguments = (
        MADE_THERE[part] if isinstance(part, str) else part for part in calls[dist.get_rank(group)]
    )
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
# What does not pass a pipe is made by the rank that needs it.
MADE_THERE = {
    "float8": LOGITS.to(torch.float8_e4m3fn),
    "sparse": LOGITS.to_sparse(),
    "meta": LOGITS.to("meta"),
    "meta tau": {"tau": torch.ones((), device="meta")},
}
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
    (("float8", TARGET, {}), "TypeError: input must be float16, bfloat16, float32 or float64"),
    (("sparse", TARGET, {}), "TypeError: input must be a dense tensor with values in memory, got"),
    (("meta", TARGET, {}), "TypeError: input must be a dense tensor with values in memory, got"),
    ((LOGITS, "sparse", {}), "TypeError: target must be a dense tensor with values in memory"),
    ((LOGITS, TARGET, "meta tau"), "TypeError: tau must be a dense tensor with values in"),
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


DISAGREEING = {
    "classes": (
        (LOGITS[:, :2], TARGET % 2, {}),
        "input must have the same number of classes on every rank, got [3, 2]",
    ),
    "dtype": ((LOGITS.double(), TARGET, {}), "input must have the same dtype on every rank, got ['torch.float32', 't"),
    "kind": (
        (LOGITS, torch.zeros(6, 3), {}),
        "target must be of the same kind on every rank, got ['class indices', 'dense']",
    ),
    "tau": ((LOGITS, TARGET, {"tau": 2.0}), "tau must be the same on every rank, got another on rank 1 than on rank 0"),
    "tau's value": ((LOGITS, TARGET, {"tau": torch.tensor([1.0, 1.0, 1.1])}), "tau must be the same on every rank"),
    "weight": ((LOGITS, TARGET, {"weight": torch.ones(3)}), "weight must be the same on every rank"),
    "k": ((LOGITS, TARGET, {"k": 2}), "k must be the same on every rank"),
    "ignore_index": ((LOGITS, TARGET, {"ignore_index": 1}), "ignore_index must be the same on every rank"),
    "reduction": ((LOGITS, TARGET, {"reduction": "sum"}), "reduction must be the same on every rank"),
}


@pytest.mark.parametrize(("other", "says"), DISAGREEING.values(), ids=DISAGREEING)
def test_ranks_that_do_not_fit_together(other, says):
    for message in messages(GOOD, other):
        assert message.startswith(f"ValueError: {says}")


def test_weights_of_other_values():
    calls = [(LOGITS, TARGET, {"weight": torch.tensor(weight)}) for weight in ([1.0, 2.0, 3.0], [2.0, 1.0, 3.0])]
    for message in messages(*calls):
        assert message.startswith("ValueError: weight must be the same on every rank, got another on rank 1 than on")


def test_one_value_in_other_clothes():
    taus = (1, 1.0, torch.ones(()), torch.ones(3, dtype=torch.float16))
    assert messages(*[(LOGITS, TARGET, {"tau": tau}) for tau in taus]) == [None] * 4


BINARY = torch.tensor([0.3, -1.0, 2.0, 0.1, 0.4, -0.2])
LABELS = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize("other", ["flat", "eval"])
def test_modules_that_differ_only_in_what_they_note(other):
    """(N,) beside (N, 1), and a rank in eval mode beside one in training: the loss is that of the joined batch."""
    column = (BINARY[:, None], LABELS[:, None])
    both = (
        torch.randn(6, 3, generator=torch.Generator().manual_seed(1)),
        (torch.eye(3)[TARGET] + torch.eye(3)[0]).clamp(max=1),
    )
    calls = [(column, True), ((BINARY, LABELS), True)] if other == "flat" else [(both, True), (both, False)]
    expected = hypersimplex_loss(
        *(torch.cat([c.reshape(6, -1) for c in part]) for part in zip(*(c for c, _ in calls), strict=True))
    )
    for loss, multilabel in ranks.run(2, trained, calls, timeout=30):
        torch.testing.assert_close(loss, expected)
        assert multilabel in (None, 1)


def trained(group, calls):
    (logits, target), training = calls[dist.get_rank(group)]
    criterion = HyperSimplexLoss(group=group).train(training)
    loss = criterion(logits.detach().clone().requires_grad_(), target).detach()
    return loss, int(criterion.multilabel) if training else None


@pytest.mark.parametrize(
    ("logits", "target", "says"),
    [
        (BINARY, LABELS, "ValueError: input must have shape (N, 3), or (3,) for one sample, as num_classes"),
        (LOGITS.numpy(), TARGET, "TypeError: input must be a tensor, got ndarray"),
    ],
)
def test_one_rank_gives_a_module_what_it_does_not_take(logits, target, says):
    got = ranks.run(2, given_to_a_module, logits, target, timeout=30)
    assert got[0] == f"RuntimeError: rank 1 failed: {got[1]}"
    assert got[1].startswith(says)


def given_to_a_module(group, *bad):
    criterion = HyperSimplexLoss(num_classes=3, group=group)
    with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
        criterion(*(bad if dist.get_rank(group) else (LOGITS, TARGET)))
    criterion(LOGITS, TARGET)  # the ranks are still in step
    return f"{caught.type.__name__}: {caught.value}"


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
