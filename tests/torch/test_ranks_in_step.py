"""One rank refuses its arguments: all ranks raise at once, and if they catch the error, the next call is right.

Each call must answer within the pool's timeout: a rank that waits for another fails the test.
"""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from hypersimplex.torch import BalancedRouter, hypersimplex_loss, soft_assignment
from tests.torch.ranks import ranks
from tests.torch.test_assignment import skewed

EXPERTS, TOKENS, CLASSES = 4, 10, 3
LOGITS = torch.randn(6, CLASSES, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2])


def scores():
    return skewed(TOKENS, EXPERTS)


# What does not pass a pipe is made by the rank that needs it.
MADE_THERE = {
    "sparse": lambda: scores().to_sparse(),
    "meta": lambda: scores().to("meta"),
    "float8": lambda: scores().to(torch.float8_e4m3fn),
    "masked": lambda: torch.where(torch.arange(TOKENS)[:, None] == 3, -torch.inf, scores()),
}


def made(values):
    return {name: MADE_THERE[v]() if isinstance(v, str) and v in MADE_THERE else v for name, v in values.items()}


def assignment(group, change):
    given = {"input": scores(), "k": 1, "capacity": 9.0, "tau": 0.4} | made(change)
    return soft_assignment(**given, group=group)


def router(group, change):
    given = {"input": scores(), "num_experts": EXPERTS, "k": 1, "bias": 0.0} | made(change)
    module = BalancedRouter(given["num_experts"], given["k"], tau=0.4, group=group)
    module.bias += given["bias"]
    return module(given["input"]), module.bias


def loss(group, change):
    return hypersimplex_loss(**({"input": LOGITS, "target": TARGET} | change), group=group)


CALLS = {"assignment": assignment, "router": router, "loss": loss}


def attempt(group, name, change, bad):
    """The message of a call that fails, and the result of a right one after it."""
    call, message = CALLS[name], None
    try:
        call(group, change if dist.get_rank(group) == bad else {})
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
    return message, call(group, {})


WRONG = {
    "assignment": {
        "k": ({"k": 9}, "ValueError: k must be between 0 and 4 (the size of dim -1), got 9"),
        "k just beyond": ({"k": np.nextafter(4.0, 5.0)}, "ValueError: k must be between 0 and 4 (the size of dim -1)"),
        "length of k": (
            {"k": torch.ones(7)},
            "ValueError: k must broadcast to the slices' shape (10,), got shape",
        ),
        "one k of many": ({"k": torch.arange(10.0)}, "ValueError: k must be between 0 and 4 (the size of dim -1), got"),
        "integer": (
            {"input": torch.ones(TOKENS, EXPERTS).long()},
            "TypeError: input must be floating point, got",
        ),
        "dims": ({"input": torch.ones(EXPERTS)}, "ValueError: input must have two dims, tokens and experts, got shape"),
        "no tensor": ({"input": np.ones((TOKENS, EXPERTS))}, "TypeError: input must be a tensor, got ndarray"),
        "sparse": ({"input": "sparse"}, "TypeError: input must be a dense tensor with values in memory"),
        "meta": ({"input": "meta"}, "TypeError: input must be a dense tensor with values in memory, got one on meta"),
        "float8": ({"input": "float8"}, "TypeError: input must be float16, bfloat16, float32 or float64, got torch.f"),
        "masked": ({"input": "masked"}, "ValueError: k must be at most 0, the number of entries that are not -inf"),
        "shape of capacity": ({"capacity": torch.ones(3)}, "ValueError: capacity must have shape (4,), got (3,)"),
        "negative capacity": ({"capacity": -1.0}, "ValueError: capacity must be at least 0, got -1.0"),
        "tau": ({"tau": 0.0}, "ValueError: tau must be positive, got 0.0"),
        "several tau": ({"tau": torch.ones(2)}, "ValueError: tau must be one number, got shape (2,)"),
    },
    "router": {
        "experts": ({"input": torch.ones(TOKENS, 5)}, "ValueError: input must have 4 experts along its last dim, got"),
        "scalar": ({"input": torch.tensor(1.0)}, "ValueError: input must have 4 experts along its last dim, got shape"),
        "integer": (
            {"input": torch.ones(TOKENS, EXPERTS).long()},
            "TypeError: input must be floating point, got",
        ),
        "no tensor": ({"input": np.ones((TOKENS, EXPERTS))}, "TypeError: input must be a tensor, got ndarray"),
        "masked": ({"input": "masked"}, "ValueError: k must be at most 0, the number of entries that are not -inf"),
    },
    "loss": {
        "label": ({"target": TARGET + 1}, "ValueError: target must be between 0 and 2 or ignore_index, got 3"),
        "shape": ({"target": TARGET[:4]}, "ValueError: target must have the shape of input (6, 3)"),
        "dtype": ({"target": TARGET.float()}, "TypeError: target must be integer where it holds class indices"),
        "integer": ({"input": LOGITS.long()}, "TypeError: input must be floating point, got torch.int64"),
        "smoothing": ({"label_smoothing": "a bit"}, "TypeError: label_smoothing must be a number, got 'a bit'"),
        "too smooth": ({"label_smoothing": 1.5}, "ValueError: label_smoothing must be between 0 and 1, got 1.5"),
        "ignore_index": ({"ignore_index": 2.5}, "TypeError: ignore_index must be a whole number, got 2.5"),
    },
}
ALONE = [pytest.param(name, *case, id=f"{name}: {of}") for name, cases in WRONG.items() for of, case in cases.items()]


def expected(name):
    """The results of one process with all tokens or samples, those of rank 0, 1, 2."""
    if name == "loss":
        return [hypersimplex_loss(LOGITS.repeat(3, 1), TARGET.repeat(3))] * 3
    if name == "assignment":
        y, bias = soft_assignment(scores().repeat(3, 1), 1, 9.0, 0.4)
    else:
        alone = BalancedRouter(EXPERTS, 1, tau=0.4)
        y, bias = alone(scores().repeat(3, 1)), alone.bias
    return [(part, bias) for part in y.split(TOKENS)]


def check(name, change, bad):
    answers = ranks.run(3, attempt, name, change, bad, timeout=30)
    wanted = expected(name)
    for (_, got), alone in zip(answers, wanted, strict=True):
        torch.testing.assert_close(got, alone, rtol=1e-6, atol=1e-6)
    return [message for message, _ in answers]


@pytest.mark.parametrize(("name", "change", "says"), ALONE)
def test_one_rank_refuses(name, change, says):
    bad = len(says) % 3  # each rank in its turn
    got = check(name, change, bad)
    assert got[bad].startswith(says)
    assert got[:bad] + got[bad + 1 :] == [f"RuntimeError: rank {bad} failed: {got[bad]}"] * 2


DIFFERENT = {
    "experts": ("assignment", {"input": skewed(TOKENS, 5)}, "input must have the same number of experts on every rank"),
    "dtype": ("assignment", {"input": scores().float()}, "input must have the same dtype on every rank, got ['torch.f"),
    "tau": ("assignment", {"tau": 0.5}, "tau must be the same on every rank, got another on rank 1 than on rank 0"),
    "capacity": ("assignment", {"capacity": 10.0}, "capacity must be the same on every rank, got another on rank 1"),
    "experts of a router": (
        "router",
        {"num_experts": 5, "input": skewed(TOKENS, 5)},
        "input must have the same number of experts on every rank, got [4, 5, 4]",
    ),
    "k of a router": ("router", {"k": 2}, "capacity must be the same on every rank, got another on rank 1 than on"),
    "dtype for a router": ("router", {"input": scores().float()}, "input must have the same dtype on every rank, got"),
    "bias": ("router", {"bias": 0.25}, "bias must be the same on every rank, got another on rank 1 than on rank 0"),
    "classes": (
        "loss",
        {"input": LOGITS[:, :2], "target": TARGET % 2},
        "input must have the same number of classes on",
    ),
    "dtype of logits": ("loss", {"input": LOGITS.double()}, "input must have the same dtype on every rank, got"),
}


@pytest.mark.parametrize(("name", "change", "says"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_suits_each_rank_but_not_all(name, change, says):
    for message in check(name, change, 1):
        assert message.startswith(f"ValueError: {says}")


def transformed(group):
    x = scores()
    function = torch.func.vmap(lambda x: soft_assignment(x, 1, 6.0, group=group)[0])
    with pytest.raises(RuntimeError) as caught:
        function(x[None]) if dist.get_rank(group) else soft_assignment(x, 1, 6.0, group=group)
    return str(caught.value), soft_assignment(x, 1, 6.0, group=group)[1]


def test_one_rank_is_transformed():
    (first, one), (second, two) = ranks.run(2, transformed, timeout=30)
    assert second == "with group, soft_assignment cannot be compiled, traced or transformed"
    assert first == f"rank 1 failed: RuntimeError: {second}"
    assert torch.equal(one, two)


def other_calls(group):
    with pytest.raises(RuntimeError) as caught:
        loss(group, {}) if dist.get_rank(group) else assignment(group, {})
    return str(caught.value), loss(group, {})


def test_ranks_that_call_different_functions():
    for message, value in ranks.run(2, other_calls, timeout=30):
        assert message == "every rank must make the same call, got ['soft_assignment', 'hypersimplex_loss']"
        torch.testing.assert_close(value, hypersimplex_loss(LOGITS.repeat(2, 1), TARGET.repeat(2)))


def second_order(group, name):
    def first(again):
        if name == "assignment":
            x = scores().requires_grad_()
            y = soft_assignment(x, 1, 6.0, group=group)[0]
        else:
            x = LOGITS.clone().requires_grad_()
            y = hypersimplex_loss(x, TARGET, reduction="none", group=group)
        v = torch.linspace(0, 1, y.numel()).reshape(y.shape).to(y)
        return torch.autograd.grad(y, x, v, create_graph=again)[0]

    with pytest.raises(RuntimeError, match="with group, create_graph=True is not possible"):
        first(again=dist.get_rank(group) == 1)
    return first(again=False)


@pytest.mark.parametrize("name", ["assignment", "loss"])
def test_a_backward_pass_that_one_rank_wants_to_differentiate(name):
    for gradient in ranks.run(2, second_order, name, timeout=30):
        assert gradient.isfinite().all()
        assert gradient.any()
