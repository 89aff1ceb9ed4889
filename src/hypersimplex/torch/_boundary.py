"""Where tensors become memory: what the kernel may be given, and when a backend may be asked at all.

The kernel reads addresses, so nothing reaches it that is not plain, dense CPU memory of the dtype it expects. Wrappers,
lazy zeros, negative views and the like are copied; what has no values to copy is an error.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hypersimplex import _checks, _kernel

FLOATS = frozenset({torch.float32, torch.float64})

is_compiling = torch.compiler.is_compiling
_in_functorch = torch._C._are_functorch_transforms_active
_is_traced = torch._C._is_tracing
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_keys = torch._C._dispatch_keys
has_batches = torch._C._functorch.is_legacy_batchedtensor  # torch.autograd.grad(is_grads_batched=True)


def is_eager() -> bool:
    """Whether tensors are what they seem: no compilation, tracing, transform, dual number or mode in between."""
    return (
        not is_compiling()
        and not _in_functorch()
        and not _is_traced()
        and not _dispatch_modes()
        and forward_ad._current_level < 0
        and not (_function_modes() and _is_recorded_early())
    )


def is_recorded() -> bool:
    """Whether a tracer or torch.func computes: what it writes into tensors of ours would outlive it."""
    return not is_compiling() and (_is_traced() or _in_functorch())


def may_write(buffer: Tensor | None, value: Tensor) -> bool:
    """Whether value may go into the buffer: of torch.func's, into one that all transforms of value know."""
    if _is_traced():
        return False
    return not _in_functorch() or (buffer is not None and _levels(value) <= _levels(buffer))


def _levels(value: Tensor) -> set[int]:
    found = set()
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        found.add(torch._C._functorch.maybe_get_level(value))
        value = torch._C._functorch.get_unwrapped(value)
    return found


def _is_recorded_early() -> bool:
    """Whether make_fx(pre_dispatch=True) is at work; it comes with a function mode."""
    return bool(torch._ops._len_torch_dispatch_stack_pre_dispatch())


def _plain_keys() -> frozenset[int]:
    """How torch dispatches tensors that are nothing but CPU memory: ordinary ones, and those of inference mode."""
    with torch.inference_mode():
        inference = torch.empty(0, device="cpu")
    with torch.inference_mode(False):
        return frozenset(_keys(t).raw_repr() for t in (inference, torch.empty(0, device="cpu")))


_PLAIN = _plain_keys()


def memory(name: str, value: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """value if it is plain CPU memory of that dtype, or else a copy that is."""
    plain = has_memory(name, value)
    if plain and (dtype is None or value.dtype is dtype):
        return value
    try:
        copy = torch.empty(value.shape, dtype=dtype or value.dtype, device="cpu")
        copy.copy_(value.detach())
    except Exception as error:  # each kind of tensor says it in its own way
        raise _checks.no_values(name, kind(value)) from error
    return copy


def has_memory(name: str, value: Tensor) -> bool:
    """Whether value is plain CPU memory. torch itself crashes where that is gone, so it is an error."""
    plain = _keys(value).raw_repr() in _PLAIN
    if plain and not value.data_ptr() and value.numel():
        raise _checks.no_values(name, "one whose storage was resized to 0")
    return plain


def check_layout(name: str, value: Tensor) -> None:
    """Refuse what is sparse or nested before it is asked for a shape or for strides, which it may not have."""
    if value.layout is not torch.strided or value.is_nested:
        raise _checks.no_values(name, kind(value))


def kind(value: Tensor) -> str:
    if value.is_nested:
        return "a nested tensor"
    if type(value) is not Tensor:
        return type(value).__name__
    return f"a tensor of layout {value.layout}" if value.layout is not torch.strided else f"one on {value.device}"


def even(name: str, x: Tensor, dim: int | None = None) -> Tensor:
    """x in float32 or float64, lying in memory as empty_like would lay it, and evenly around dim; copied if it must."""
    x = memory(name, x.detach(), x.dtype if x.dtype in FLOATS else torch.float32)
    if x.is_contiguous():
        return x
    dense = torch.empty_like(x).stride() == x.stride()
    return x if dense and (dim is None or _kernel.lies_evenly(x.shape, x.stride(), dim)) else x.contiguous()


def alike(name: str, value: Tensor, x: Tensor) -> Tensor:
    """value with the dtype and the strides of x, which is even."""
    value = memory(name, value.detach(), x.dtype)
    return value if value.stride() == x.stride() else torch.empty_like(x).copy_(value)


def doubles(name: str, value: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """float64 numbers one after the other, one for each place of the shape."""
    return memory(name, value.detach(), torch.float64).expand(shape).contiguous()


def as_numbers(value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if isinstance(value, float | int):
        if is_compiling():
            # as_tensor would make it a constant of the graph, which then is compiled anew for every number.
            return torch.zeros((), dtype=dtype, device=device) + value
        if device.type != "cpu":  # as_tensor would copy it to the device, which waits, and which no CUDA graph can hold
            return torch.full((), value, dtype=dtype, device=device)
    return torch.as_tensor(value, dtype=dtype, device=device)


def is_captured(x: Tensor) -> bool:
    """Whether a CUDA graph is being captured: then nothing may wait for the device."""
    return x.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def view(value: Tensor | None) -> Any:
    """As an array of NumPy's."""
    return None if value is None else value.numpy()


def slices(x: Tensor, dim: int) -> torch.Size:
    return torch.Size([size for d, size in enumerate(x.shape) if d != dim % x.dim()])


def computed(dtype: torch.dtype) -> torch.dtype:
    """The dtype that entries of this dtype are computed in."""
    return dtype if dtype is torch.float64 else torch.float32


def widest(device: torch.device) -> torch.dtype:
    """MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
