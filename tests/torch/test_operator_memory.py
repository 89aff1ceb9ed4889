"""What the compiled path keeps for backward: one tensor of the input's size, where autograd can see it.

Plain torch keeps what its own operations keep.
"""

import pytest
import torch

from hypersimplex.torch import SoftBinaryArgmax, binary_argmax, soft_binary_argmax


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def saved_for_backward(function):
    """The tensors that autograd keeps, each storage once."""
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = function()
    return y, list(saved.values())


@pytest.mark.parametrize("shape", [(8, 100), (800,)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("module", [False, True])
def test_one_tensor_of_the_inputs_size_is_saved(shape, dtype, module):
    x = normal(*shape, dtype=dtype).requires_grad_()
    k, tau = torch.tensor(9.5, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    call = SoftBinaryArgmax(k, tau) if module else lambda x: soft_binary_argmax(x, k, tau)
    y, saved = saved_for_backward(lambda: call(x))
    # Zero of them would mean that it is kept where these hooks, and so activation offloading, cannot see it.
    assert sum(tensor.numel() >= x.numel() for tensor in saved) == 1
    assert sum(tensor.nbytes for tensor in saved) < 1.2 * x.nbytes
    y.sum().backward()


def test_changing_the_saved_tensor_in_place_is_noticed():
    x = normal(9).requires_grad_()
    y = soft_binary_argmax(x, 2.5)
    y.mul_(0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_nothing_is_tracked_without_need():
    x = normal(4, 9)
    assert not soft_binary_argmax(x, 2.5).requires_grad
    assert not binary_argmax(x.requires_grad_(), 2).requires_grad
    with torch.no_grad():
        assert not soft_binary_argmax(x, 2.5).requires_grad
