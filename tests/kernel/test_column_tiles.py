"""Slices along the first dim are worked on in tiles of columns. A tile must not be narrower than a register, or it
would reach into its neighbor: tried at every width where the number of tiles changes, or the last would be narrow."""

import numpy as np
import pytest
import torch

from hypersimplex import _kernel, reference
from hypersimplex.torch import soft_binary_argmax

SIZES = _kernel.constants()
TILE = SIZES["column_tile"]
NARROW, LONG = SIZES["narrow_columns"], SIZES["transposed_bytes"] // SIZES["transposed_columns"]

# (TILE - 1) * TILE + 1 columns in equal tiles, rounded up, would leave one column for the last.
WIDTHS = [
    *(NARROW + i for i in (-1, 0, 1)),
    *(tiles * TILE + i for tiles in (1, 2, 3, TILE) for i in (-1, 0, 1)),
    *((TILE - 1) * tiles + 1 for tiles in (TILE - 7, TILE)),
    16003,
    32001,
    49153,
]


def expected_gradient(y, v, tau):
    active = (y > 0) & (y < 1)
    count = active.sum(axis=0)
    mean = np.where(active, v, 0).sum(axis=0) / np.maximum(count, 1)
    return np.where(active, (v - mean) / tau, 0), np.where(count > 0, mean, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("columns", WIDTHS)
def test_no_column_is_touched_by_its_neighbor(columns, dtype):
    generator = torch.Generator().manual_seed(columns)
    x = torch.randn(6, columns, generator=generator, dtype=dtype, requires_grad=True)
    v = torch.randn(6, columns, generator=generator, dtype=dtype)
    k = torch.rand(columns, generator=generator, dtype=dtype).mul_(6).requires_grad_()
    y = soft_binary_argmax(x, k, 0.7, dim=0)
    to_x, to_k = torch.autograd.grad(y, (x, k), v)
    accuracy = 50 * torch.finfo(dtype).eps
    np.testing.assert_allclose(y.detach().sum(0), k.detach(), rtol=0, atol=accuracy)
    last = slice(max(0, columns - 20), columns)  # the reference is slow
    right = reference.soft_binary_argmax(x.detach()[:, last].numpy(), k.detach()[last].numpy(), 0.7, axis=0)
    np.testing.assert_allclose(y.detach()[:, last].numpy(), right, rtol=0, atol=accuracy)
    right_x, right_k = expected_gradient(y.detach().numpy(), v.numpy(), 0.7)
    np.testing.assert_allclose(to_x.numpy(), right_x, rtol=0, atol=accuracy)
    np.testing.assert_allclose(to_k.numpy(), right_k, rtol=0, atol=accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_long_columns_of_a_wide_array(dtype):
    """The same in the search over long columns, which has tiles of its own: a gigabyte is the least that shows it."""
    n, columns = LONG // dtype.itemsize + 1, (TILE - 1) * (TILE - 6) + 1
    x = torch.randn(n, columns, dtype=dtype)
    y = soft_binary_argmax(x, n / 10, dim=0)
    at = torch.arange(0, columns, 97)
    near = torch.cat([at, torch.arange(columns - 300, columns)]).unique()
    np.testing.assert_allclose(y.sum(0, dtype=torch.float64).numpy(), n / 10, rtol=1e-6)
    rows = soft_binary_argmax(x[:, near].T.contiguous(), n / 10).T
    np.testing.assert_allclose(y[:, near].numpy(), rows.numpy(), rtol=0, atol=1e-6)
