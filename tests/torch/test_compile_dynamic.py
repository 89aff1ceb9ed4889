"""Compiled with shapes and numbers that change from call to call: one graph serves them, and gives what eager gives."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from hypersimplex.torch import (
    BalancedRouter,
    HyperSimplexLoss,
    box_section,
    hypersimplex_loss,
    soft_assignment,
    soft_topk,
    soft_topk_segments,
)
from tests.torch.losses import labels_of, normal

C = 5


@pytest.fixture(autouse=True)
def compiled_afresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def leaf(rows):
    return normal(rows, C, dtype=torch.float32, seed=rows).requires_grad_()


def dense(rows):
    return (normal(rows, C, seed=rows + 1) > 0.5).float()


LABELS, WEIGHT = labels_of(16, classes=C), torch.linspace(0.5, 2, C)
MODULES = {
    "weight": (lambda: HyperSimplexLoss(WEIGHT, num_classes=C), lambda n: (leaf(n), labels_of(n, classes=C))),
    "dense": (lambda: HyperSimplexLoss(num_classes=C), lambda n: (leaf(n), dense(n))),
    "router": (lambda: BalancedRouter(C, 2), lambda n: (leaf(n),)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("make", "batch"), MODULES.values(), ids=MODULES)
def test_batches_of_every_size_share_a_graph(make, batch, dynamic):
    module, eager = make(), make()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend=counter)
    for rows in (16, 21, 12, 33):
        torch.testing.assert_close(compiled(*batch(rows)), eager(*batch(rows)))
    for (name, one), other in zip(module.named_buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
    assert counter.frame_count <= 2


FUNCTIONS = {
    "soft_topk": lambda x, tau: soft_topk(x, 2 + tau, tau),
    "segments": lambda x, tau: soft_topk_segments(x[:, 0], 1.0, torch.tensor([0, 4, 16]), tau),
    "box": lambda x, tau: box_section(x, 2.0, upper=1 + tau, tau=tau),
    "assignment": lambda x, tau: soft_assignment(x, 2.0, 8.0, tau)[0],
    "loss": lambda x, tau: hypersimplex_loss(x, LABELS, tau=tau),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_number_that_changes_is_no_new_graph(function):
    """As a temperature that is lowered step by step."""
    counter, x = CompileCounterWithBackend("aot_eager"), leaf(16)
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for tau in (0.9, 0.7, 0.4, 0.1):
        torch.testing.assert_close(compiled(x, tau), function(x, tau))
    assert counter.frame_count <= 2
