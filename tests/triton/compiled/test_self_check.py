"""The self-check that every device runs before it is trusted, at the real size of a tile."""

import pytest
import torch

from hypersimplex.torch.backends.triton import _self_check

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_kernels_pass(device, dtype):
    assert list(_self_check.differences(device, dtype)) == []
