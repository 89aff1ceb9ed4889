"""Slices over ranks: how much travels, second derivatives, and errors that leave no rank waiting.

Each call must answer within the pool's timeout: a rank that waits for another fails the test.
"""

import warnings

import pytest
import torch
import torch.distributed as dist

from hypersimplex.torch import binary_argmax, hypersimplex_loss, soft_topk, threshold
from tests.torch.rank_slices import DOUBLE, learned, messages
from tests.torch.ranks import ranks

SPLIT = [9, 0, 14]


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def counted(group, x, k, curve):
    x = x.split([40, 0, 60], -1)[dist.get_rank(group)].clone().requires_grad_()
    of_tau = torch.ones((), dtype=DOUBLE, requires_grad=True)
    with messages() as forward:
        y = soft_topk(x, k, curve=curve, group=group)
    with messages() as backward:
        y.sum().backward()
    with messages() as both:
        soft_topk(x, k, of_tau, curve=curve, group=group).sum().backward()
    with messages() as chosen:
        binary_argmax(x, k, group=group)
    return forward, backward, both[-1:], chosen


@pytest.mark.parametrize("curve", ["ramp", "exp", "logistic", "laplace"])
def test_few_numbers_travel_in_few_messages(curve):
    """What the ranks agree on, the ends of a bracket, three sums per step; two sums in the backward pass."""
    answers = ranks.run(3, counted, normal(3, 100), 7, curve)
    assert answers[0] == answers[1] == answers[2]
    forward, backward, with_tau, chosen = answers[0]
    assert forward[0] == (18,)
    assert backward == [(2 * 3 + 2,)]
    assert with_tau == [(4 * 3 + 2,)]
    if curve == "ramp":
        assert forward[1] == (2, 3)
        assert 1 <= len(forward) - 2 <= 6
        assert all(shape[0] == 3 and shape[1] <= 3 for shape in forward[2:])
    else:
        assert len(forward) <= 26
        assert max(map(numbers, forward[1:])) == 15 * 3  # counts of the entries above pivots
    assert 2 <= len(chosen) <= 1 + 16
    assert max(map(numbers, chosen[1:])) == 15 * 3


def numbers(shape):
    return torch.Size(shape).numel()


@pytest.mark.parametrize("k", [0, 100])
def test_nothing_to_search_for(k):
    for forward, *_ in ranks.run(3, counted, normal(3, 100), k, "ramp"):
        assert len(forward) == 3


def interval(group, x):
    x = x.split([2, 0, 3], -1)[dist.get_rank(group)]
    with messages() as of_y:
        soft_topk(x, 2, 0.1, group=group)
    with messages() as of_mu:
        threshold(x, 2, 0.1, group=group)
    return len(of_mu) - len(of_y)


def test_the_ends_of_an_interval_are_one_more_message():
    assert ranks.run(3, interval, torch.tensor([5.0, 0.0, 7.0, -1.0, 0.5])) == [1, 1, 1]
    assert ranks.run(3, interval, torch.tensor([5.0, 5.0, 5.0, -1.0, 0.5])) == [0, 0, 0]


def penalty(x, v, k, tau, curve, **group):
    """A function of the gradients of the operator and of the threshold, differentiated."""
    x, k, tau = x.detach().clone().requires_grad_(), learned(k), learned(tau)
    y = soft_topk(x, k, tau, curve=curve, **group)
    first = torch.autograd.grad((y * v).square().sum(), (x, k, tau), create_graph=True)
    mu = threshold(x, k, tau, curve=curve, **group)
    share = 1 / dist.get_world_size(group["group"]) if group else 1.0
    of_mu = torch.autograd.grad(mu.square().sum() * share, (x, k, tau), create_graph=True)
    # Every rank has the gradients to k and tau whole, and its part of the objective is a part of theirs.
    own = (first[0].square() * v).sum() + (of_mu[0] * v).sum()
    whole = sum(t.square().sum() for t in (*first[1:], *of_mu[1:])) * share
    return torch.autograd.grad(own + whole, (x, k, tau))


def penalty_on_rank(group, split, x, v, k, tau, curve):
    rank = dist.get_rank(group)
    return penalty(x.split(split, -1)[rank], v.split(split, -1)[rank], k, tau, curve, group=group)


@pytest.mark.parametrize("curve", ["ramp", "exp", "logistic", "laplace"])
def test_second_derivatives(curve):
    x, v, k, tau = normal(2, 23), normal(2, 23, seed=1), torch.tensor([3.5, 8.0]), torch.tensor([0.8, 2.0])
    expected = penalty(x, v, k, tau, curve)
    assert all(t.abs().max() > 1e-3 for t in expected)
    parts = ranks.run(3, penalty_on_rank, SPLIT, x, v, k, tau, curve)
    torch.testing.assert_close(torch.cat([part[0] for part in parts], -1), expected[0], rtol=1e-9, atol=1e-9)
    for part in parts:
        torch.testing.assert_close(part[1:], expected[1:], rtol=1e-9, atol=1e-9)


GOOD = normal(2, 5)
OTHERS = {"soft_topk": soft_topk, "threshold": threshold, "binary_argmax": binary_argmax}
# What does not pass a pipe is made by the rank that needs it.
MADE_THERE = {
    "sparse": lambda: GOOD.to_sparse(),
    "meta": lambda: GOOD.to("meta"),
    "float8": lambda: GOOD.to(torch.float8_e4m3fn),
    "learned": lambda: GOOD.clone().requires_grad_(),
    "learned k": lambda: torch.tensor(2.0, requires_grad=True),
}


def attempt(group, name, changes):
    """The message of a call that fails, and the result of a right one after it."""
    given = {"input": GOOD, "k": 2} | changes.get(dist.get_rank(group), {})
    function, message = OTHERS[given.pop("function", name)], None
    given = {key: MADE_THERE[v]() if isinstance(v, str) and v in MADE_THERE else v for key, v in given.items()}
    try:
        function(**given, group=group)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    return message, function(GOOD, 2, group=group) if "hard" not in given else None


def attempts(name, changes):
    answers = ranks.run(3, attempt, name, changes, timeout=60)
    return [message for message, _ in answers]


ONE_RANK = {
    "integer": ({"input": GOOD.long()}, "TypeError: input must be floating point, got torch.int64"),
    "scalar": ({"input": GOOD[0, 0]}, "ValueError: input must have at least one dimension, got a scalar"),
    "dim": ({"dim": 2}, "ValueError: dim must be between -2 and 1, got 2"),
    "no tensor": ({"input": None}, "TypeError: input must be a tensor, got NoneType"),
    "k": ({"k": torch.ones(3)}, "ValueError: k must broadcast to the slices' shape (2,), got shape (3,)"),
    "text": ({"k": "many"}, "TypeError: k must be a number or an array of numbers, got str"),
    "sparse": ({"input": "sparse"}, "TypeError: input must be a dense tensor with values in memory, got"),
    "meta": ({"input": "meta"}, "TypeError: input must be a dense tensor with values in memory, got"),
    "float8": ({"input": "float8"}, "TypeError: input must be float16, bfloat16, float32 or float64"),
}
OF_CURVES = {"curve": ({"curve": "x"}, "ValueError: curve must be 'ramp', 'exp', 'logistic' or 'laplace', got 'x'")}


@pytest.mark.parametrize("function", OTHERS)
def test_one_rank_fails(function):
    for bad, says in (ONE_RANK | (OF_CURVES if function != "binary_argmax" else {})).values():
        got = attempts(function, {2: bad})
        assert got[2].startswith(says)
        assert got[:2] == [f"RuntimeError: rank 2 failed: {got[2]}"] * 2


EVERY_RANK = {
    "k above n": ({"k": 16}, "k must be between 0 and 15 (the size of dim -1), got 16"),
    "one k of two": ({"k": torch.tensor([2.0, -1.0])}, "k must be between 0 and 15 (the size of dim -1), got -1"),
    "NaN": ({"k": torch.nan}, "k must be between 0 and 15 (the size of dim -1), got nan"),
    "masked": (
        {"input": torch.where(torch.arange(5) > 1, GOOD, -torch.inf), "k": 10},
        "k must be at most 9, the number of entries that are not -inf, got 10; to lower it where",
    ),
}


@pytest.mark.parametrize("function", OTHERS)
def test_numbers_that_suit_no_rank(function):
    """Some of them would suit a rank's own entries, and some would not."""
    wrong = dict(EVERY_RANK)
    if function == "binary_argmax":
        wrong["part"] = ({"k": 2.5}, "k must be a whole number for exactly k ones, got 2.5")
    else:
        wrong["tau"] = ({"tau": 0.0}, "tau must be positive, got 0.0")
    for bad, says in wrong.values():
        got = attempts(function, dict.fromkeys(range(3), bad))
        assert [text.startswith(f"ValueError: {says}") for text in got] == [True] * 3, got
    assert attempts(function, {rank: {"k": 15} for rank in range(3)}) == [None] * 3


DISAGREEING = {
    "slices": ({"input": GOOD[:1]}, "ValueError: the shape of input but for dim -1 must be the same on every rank"),
    "dims": ({"input": GOOD[0]}, "ValueError: dim must be the same on every rank, got [1, 0, 1]"),
    "dim": ({"dim": 0}, "ValueError: dim must be the same on every rank, got [1, 0, 1]"),
    "dtype": ({"input": GOOD.float()}, "ValueError: input must have the same dtype on every rank, got ['torch.float64"),
    "k": ({"k": 3}, "ValueError: k must be the same on every rank, got another on rank 1 than on rank 0"),
    "k of a slice": ({"k": torch.tensor([2, 3])}, "ValueError: k must be the same on every rank"),
}
OF_GRADIENTS = {
    "tau": ({"tau": 2.0}, "ValueError: tau must be the same on every rank"),
    "curve": ({"curve": "exp"}, "ValueError: curve must be the same on every rank, got ['ramp', 'exp', 'ramp']"),
    "input learned": ({"input": "learned"}, "ValueError: input.requires_grad must be the same on every rank, got [Fa"),
    "k learned": ({"k": "learned k"}, "ValueError: k.requires_grad must be the same on every rank, got [False, True"),
}


@pytest.mark.parametrize("function", OTHERS)
def test_ranks_that_do_not_fit_together(function):
    for other, says in (DISAGREEING | (OF_GRADIENTS if function != "binary_argmax" else {})).values():
        got = attempts(function, {1: other})
        assert got == [got[0]] * 3
        assert got[0].startswith(says)


def test_hard_on_one_rank_and_another_call_on_another():
    for text in attempts("soft_topk", {1: {"hard": True}, 0: {"hard": False}, 2: {"hard": False}}):
        assert text == "ValueError: hard must be the same on every rank, got [False, True, False]"
    got = ranks.run(3, calls_differ, timeout=60)
    assert got == ["every rank must make the same call, got ['soft_topk', 'threshold', 'hypersimplex_loss']"] * 3


def calls_differ(group):
    call = (soft_topk, threshold, hypersimplex_loss)[dist.get_rank(group)]
    with pytest.raises(RuntimeError) as caught:
        call(GOOD, torch.tensor([0, 1]), group=group)
    return str(caught.value)


def test_one_value_in_other_clothes():
    same = {0: {"k": 2}, 1: {"k": torch.tensor([2.0, 2.0]), "dim": 1}, 2: {"k": torch.tensor(2, dtype=torch.int8)}}
    assert attempts("soft_topk", same) == [None] * 3


def differentiated(group, how):
    x = GOOD.clone().requires_grad_()
    rank = dist.get_rank(group)

    def f(x):
        return soft_topk(x, 2, group=group)

    said = []
    for call in {
        "forward": (
            lambda: torch.func.grad(lambda x: f(x).sum())(x),
            lambda: torch.vmap(f)(x[None]),
            lambda: forward_mode(f, x),
        ),
        "backward": (
            lambda: torch.autograd.grad(f(x).sum(), x, create_graph=rank == 1),
            lambda: torch.autograd.grad(f(x), x, torch.ones(3, *x.shape, dtype=DOUBLE), is_grads_batched=True),
        ),
    }[how]:
        with pytest.raises(RuntimeError) as caught:
            call()
        said.append(str(caught.value))
    return said, f(x).detach()


def forward_mode(f, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own
        return torch.func.jvp(f, (x,), (x,))


@pytest.mark.parametrize("how", ["forward", "backward"])
def test_what_does_not_work_is_named_on_every_rank(how):
    expected = {
        "forward": ["group does not work under torch.compile, torch.func or forward mode"] * 3,
        "backward": [
            "create_graph must be the same on every rank of the group",
            "with group, the backward pass does not work under torch.func, or for many at once",
        ],
    }[how]
    for said, y in ranks.run(3, differentiated, how, timeout=60):
        assert said == expected
        torch.testing.assert_close(y.sum(-1), torch.full((2,), 2 / 3, dtype=DOUBLE))


def test_groups_that_are_none():
    for function in OTHERS.values():
        with pytest.raises(RuntimeError, match=r"call torch\.distributed\.init_process_group first"):
            function(GOOD, 2, group=True)
