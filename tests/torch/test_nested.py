"""Nested tensors of the layout torch.jagged: every row is a slice by itself."""

import pytest
import torch

from hypersimplex._curves import CURVES
from hypersimplex.torch import binary_argmax, soft_topk, threshold

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
LENGTHS = [3, 5, 1, 4]


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rows(*rest):
    return [normal(length, *rest, seed=length) for length in LENGTHS]


def jagged(parts):
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("rest", [(), (2,), (2, 3)], ids=str)
def test_rows_are_slices(rest, curve):
    k, tau = torch.tensor([1.5, 2.0, 0.25, 3.5]), torch.tensor([0.5, 1.0, 2.0, 0.7])
    k, tau = (t.double().reshape(4, *[1] * len(rest)).expand(4, *rest).clone().requires_grad_() for t in (k, tau))
    parts, v = [part.requires_grad_() for part in rows(*rest)], [part.cos().detach() for part in rows(*rest)]
    expected = [soft_topk(part, k[i], tau[i], 0, curve=curve) for i, part in enumerate(parts)]
    gradients = torch.autograd.grad(sum((y * w).sum() for y, w in zip(expected, v, strict=True)), [*parts, k, tau])
    x = jagged(parts)
    y = soft_topk(x, k, tau, 1, curve=curve)
    assert y.is_nested
    torch.testing.assert_close(y.values(), torch.cat(expected))
    found = torch.autograd.grad((y.values() * torch.cat(v)).sum(), [*parts, k, tau])
    for got, wanted in zip(found, gradients, strict=True):
        torch.testing.assert_close(got, wanted)
    (x * y).values()  # of the same rows
    mu = torch.stack([threshold(part, k[i], tau[i], 0, curve=curve) for i, part in enumerate(parts)])
    torch.testing.assert_close(threshold(x, k, tau, 1, curve=curve), mu)
    chosen = torch.cat([binary_argmax(part.detach(), 1, 0) for part in parts])
    torch.testing.assert_close(binary_argmax(x.detach(), 1, 1).values(), chosen)
    torch.testing.assert_close(soft_topk(x, 1, dim=1, hard=True).values().detach(), chosen)


def test_numbers_for_all_rows_and_the_last_dim():
    x = jagged(rows())
    torch.testing.assert_close(soft_topk(x, 1).values(), soft_topk(x, torch.ones(4), 1.0, 1).values())


def test_what_cannot_be_served_is_named():
    x = jagged(rows(2))
    with pytest.raises(ValueError, match="dim must be 1, the ragged dim of a nested tensor, got -1"):
        soft_topk(x, 1)
    with pytest.raises(ValueError, match="dim must be 1, the ragged dim of a nested tensor, got 1"):
        soft_topk(x.transpose(1, 2), 1, dim=1)
    with pytest.raises(ValueError, match=r"k must broadcast to the slices' shape \(4, 2\), got shape \(3,\)"):
        soft_topk(x, torch.ones(3), dim=1)
    with pytest.raises(ValueError, match=r"k must be between 0 and 1 \(the size of segment 2\), got 2"):
        soft_topk(x, 2, dim=1)
    with pytest.raises(TypeError, match=r"input must be floating point, got torch\.int64"):
        soft_topk(jagged([torch.arange(3), torch.arange(2)]), 1)
    gaps = torch.nested.narrow(normal(2, 5), 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged)
    with pytest.raises(TypeError, match="got a nested tensor with gaps between its rows"):
        soft_topk(gaps, 1)
