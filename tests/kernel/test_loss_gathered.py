"""The loss with ignored labels, or with positions: entries are gathered from wherever they lie, some at a time."""

import pytest
import torch

from hypersimplex import _kernel
from hypersimplex.torch import hypersimplex_loss

GATHERED = _kernel.constants()["loss_gathered"]
# How the logits of (samples, classes, positions) lie in memory: which axis is the outermost, which the innermost.
ORDERS = {"classes inside": (0, 2, 1), "positions inside": (0, 1, 2), "samples inside": (1, 2, 0)}


@pytest.fixture(autouse=True)
def fresh_memory_is_nan():
    """What the kernel leaves out is then not 0 by chance."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def laid_out(x, order):
    """The same numbers with the axes in this order in memory."""
    return x.permute(order).contiguous().permute([order.index(axis) for axis in range(3)])


def both(x, target):
    x = x.requires_grad_()
    loss = hypersimplex_loss(x, target, reduction="sum")
    return loss.detach(), torch.autograd.grad(loss, x)[0]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("positions", [1, 7, GATHERED])
@pytest.mark.parametrize("classes", [2, 33])
@pytest.mark.parametrize("some", [GATHERED - 1, GATHERED, GATHERED + 1, 2 * GATHERED, 2 * GATHERED + 1])
@pytest.mark.parametrize("ignored", ["none", "every third", "a run"])
def test_gathered_entries_are_those_of_a_plain_batch(order, positions, classes, some, ignored):
    """As many as are gathered at a time are kept, or one fewer or more: as if they had been the whole batch."""
    generator = torch.Generator().manual_seed(some + classes)
    samples = -(-2 * some // positions)
    x = torch.randn(samples, classes, positions, generator=generator)
    target = torch.randint(classes, (samples, positions), generator=generator)
    place = torch.arange(samples * positions).reshape(samples, positions)
    keep = {"none": place >= 0, "every third": place % 3 > 0, "a run": (place < 5) | (place > 5 + some // 2)}[ignored]
    keep &= keep.flatten().cumsum(0).reshape(keep.shape) <= some
    target[~keep] = -100
    loss, gradient = both(laid_out(x, order), target)
    entries = x.movedim(1, 2)[keep]
    assert len(entries) == some
    plain_loss, plain_gradient = both(entries.contiguous(), target[keep])
    torch.testing.assert_close(loss, plain_loss, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.movedim(1, 2)[keep], plain_gradient, rtol=1e-5, atol=1e-6)
    assert not gradient.movedim(1, 2)[~keep].any()
