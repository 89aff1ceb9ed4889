"""Where tensors meet the kernel: the registered operators, and the choice between the kernel and plain torch.

    hypersimplex::project(x, k, tau, dim)    the projection, without a gradient of its own
    hypersimplex::threshold(x, k, tau, dim)
    hypersimplex::binary(x, k, dim)

k and tau are float64 tensors, 0-d or of the slices' shape. Gradients are attached outside, by functional.py.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hypersimplex import _checks, _kernel
from hypersimplex.torch import _plain, _triton

_library = torch.library.Library("hypersimplex", "DEF")
_library.define("project(Tensor x, Tensor k, Tensor tau, int dim) -> Tensor")
_library.define("threshold(Tensor x, Tensor k, Tensor tau, int dim) -> Tensor")
_library.define("binary(Tensor x, Tensor k, int dim) -> Tensor")

_forced_plain = bool(os.environ.get("HYPERSIMPLEX_PLAIN"))


@contextmanager
def plain() -> Iterator[None]:
    """Use plain torch operations instead of the kernel, as on a device that has none."""
    global _forced_plain
    before, _forced_plain = _forced_plain, True
    try:
        yield
    finally:
        _forced_plain = before


def is_plain() -> bool:
    return _forced_plain


_is_compiling = torch.compiler.is_compiling
_in_functorch = torch._C._are_functorch_transforms_active


def no_transform() -> bool:
    """Whether tensors are what they seem: no compilation, no functorch level, no dual numbers."""
    return not _is_compiling() and not _in_functorch() and forward_ad._current_level < 0


def evenly(x: Tensor, dim: int) -> Tensor:
    """x in float32 or float64, lying in memory so that the kernel can walk it; a copy only if it must be."""
    if x.dtype != torch.float32 and x.dtype != torch.float64:
        x = x.float()
    if x.is_contiguous() and not x.is_neg():
        return x
    dense = torch.empty_like(x).stride() == x.stride() and not x.is_neg()
    return x if dense and _kernel.lies_evenly(x.shape, x.stride(), dim) else x.contiguous().resolve_neg()


def address(value: Tensor | float) -> tuple[int, float]:
    """A number for all slices, or the address of one for each."""
    return (value.data_ptr(), 0.0) if isinstance(value, Tensor) else (0, value)


def fail(failure: _checks.Failure, k: Tensor | float, tau: Tensor | float, n: int, dim: int) -> None:
    at = failure[1]
    numbers = [float(v.flatten()[at]) if isinstance(v, Tensor) else v for v in (k, tau)]
    _checks.raise_failure(failure, numbers[0], numbers[1], n, f"dim {dim}")


def kernel_project(x: Tensor, k: Tensor | float, tau: Tensor | float, dim: int, y: int, mu: int) -> None:
    """Run the kernel on an even x, writing to the addresses y and mu; tensors k and tau are contiguous float64."""
    if isinstance(tau, Tensor) and not tau.numel():
        return  # no slice; and an empty tensor has no address
    failure = _kernel.project_at(
        x.dtype is torch.float64, x.data_ptr(), y, mu, x.shape, x.stride(), dim,
        *address(k), *address(tau), 0, torch.get_num_threads(),
    )  # fmt: skip
    if failure:
        fail(failure, k, tau, x.shape[dim], dim)


def kernel_backward(
    y: Tensor, v: Tensor, tau: Tensor | float, dim: int, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients to x, k and tau that are needed, from a y that the kernel made."""
    dtype = y.dtype
    if dtype is not torch.float32 and dtype is not torch.float64:
        y, v = y.float(), v.float()
    if v.stride() != y.stride() or v.is_neg():
        v = torch.empty_like(y).copy_(v)
    to_x = torch.empty_like(y) if needs[0] else None
    to_k = torch.empty(_slices(y, dim), dtype=torch.float64) if needs[1] else None
    to_tau = torch.empty(_slices(y, dim), dtype=torch.float64) if needs[2] else None
    _kernel.backward_at(
        y.dtype is torch.float64, y.data_ptr(), v.data_ptr(),
        0 if to_x is None else to_x.data_ptr(),
        0 if to_k is None else to_k.data_ptr(),
        0 if to_tau is None else to_tau.data_ptr(),
        y.shape, y.stride(), dim, *address(tau), torch.get_num_threads(),
    )  # fmt: skip
    return to_x if to_x is None or dtype is y.dtype else to_x.to(dtype), to_k, to_tau


def _slices(x: Tensor, dim: int) -> torch.Size:
    return torch.Size([s for d, s in enumerate(x.shape) if d != dim % x.dim()])


def _whole(x: Tensor, value: Tensor, dim: int) -> Tensor:
    return value.to(torch.float64).expand(_slices(x, dim)).contiguous()


def _project_cpu(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    if _forced_plain:
        return _project_plain(x, k, tau, dim)
    even = evenly(x, dim)
    y = torch.empty_like(even)
    kernel_project(even, _whole(x, k, dim), _whole(x, tau, dim), dim, y.data_ptr(), 0)
    return _like(y.to(x.dtype), x)


def _threshold_cpu(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    if _forced_plain:
        return _threshold_plain(x, k, tau, dim)
    even = evenly(x, dim)
    mu = torch.empty(_slices(x, dim), dtype=torch.float64)
    kernel_project(even, _whole(x, k, dim), _whole(x, tau, dim), dim, 0, mu.data_ptr())
    return mu.to(even.dtype)


def _binary_cpu(x: Tensor, k: Tensor, dim: int) -> Tensor:
    if _forced_plain:
        return _binary_plain(x, k, dim)
    even, whole = evenly(x, dim), _whole(x, k, dim)
    y = torch.empty_like(even)
    failure = _kernel.binary_at(
        even.dtype is torch.float64, even.data_ptr(), y.data_ptr(), even.shape, even.stride(), dim,
        whole.data_ptr(), 0.0, torch.get_num_threads(),
    )  # fmt: skip
    if failure:
        fail(failure, whole, 1.0, x.shape[dim], dim)
    return _like(y.to(x.dtype), x)


def _like(y: Tensor, x: Tensor) -> Tensor:
    """y with the strides that empty_like gives: what the fake kernels promise."""
    promised = torch.empty_like(x)
    return y if y.stride() == promised.stride() else promised.copy_(y)


def _plain_input(x: Tensor, dim: int) -> Tensor:
    if x.dtype != torch.float32 and x.dtype != torch.float64:
        x = x.float()
    return x.movedim(dim, -1)


def _check_plain(x: Tensor, k: Tensor, tau: Tensor, dim: int, whole: bool = False) -> None:
    """The kernel's checks, where the values can be read without waiting for a device."""
    if x.device.type != "cpu":
        return
    n = x.shape[dim]
    k, tau = (v.expand(_slices(x, dim)).flatten() for v in (k, tau))
    usable = (x != -torch.inf).sum(dim).flatten()
    nan = torch.isnan(x).any(dim).flatten()
    wrong = {
        "tau": ~((tau > 0) & torch.isfinite(tau)),
        "k": ~((k >= 0) & (k <= n)) | (whole & (k != k.floor())),
        "masked": (k > usable) & ~nan,
    }
    for what, bad in wrong.items():
        if bad.any():
            at = int(bad.nonzero()[0])
            fail((what, at, int(usable[at])), k, tau, n, dim)


def _project_plain(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    _check_plain(x, k, tau, dim)
    if x.numel() == 0:
        return torch.empty_like(x)
    k, tau = (v.expand(_slices(x, dim)) for v in (k, tau))
    return _like(_plain.project(_plain_input(x, dim), k, tau)[0].movedim(-1, dim).to(x.dtype), x)


def _threshold_plain(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    _check_plain(x, k, tau, dim)
    wide = _plain_input(x, dim)
    if x.numel() == 0:
        return torch.zeros(_slices(x, dim), dtype=wide.dtype, device=x.device)
    k, tau = (v.expand(_slices(x, dim)) for v in (k, tau))
    return _plain.project(wide, k, tau)[1].to(wide.dtype)


def _binary_plain(x: Tensor, k: Tensor, dim: int) -> Tensor:
    _check_plain(x, k, torch.ones_like(k), dim, whole=True)
    if x.numel() == 0:
        return torch.empty_like(x)
    return _like(_plain.binary(_plain_input(x, dim), k.expand(_slices(x, dim))).movedim(-1, dim).to(x.dtype), x)


def uses_triton() -> bool:
    return _triton.is_available() and not _forced_plain


def project_triton(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    """On CUDA: by Triton where it is installed."""
    if not uses_triton():
        return _project_plain(x, k, tau, dim)
    return _like(_triton.project(x, k, tau, dim)[0], x)


def threshold_triton(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    if not uses_triton():
        return _threshold_plain(x, k, tau, dim)
    mu = _triton.settle(x, _triton.project(x, k, tau, dim)[1], tau, dim)
    return mu if x.dtype is torch.float64 else mu.to(torch.float32)


def _threshold_fake(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> Tensor:
    return x.new_empty(_slices(x, dim), dtype=torch.float64 if x.dtype is torch.float64 else torch.float32)


def _batched(op: Any, tensors: int) -> Any:
    """A vmap rule: the batch becomes one more dim in front, of x and of the slices."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        x, dim = args[0], args[-1]
        size = info.batch_size
        ndim = x.dim() - (in_dims[0] is not None)
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(size, *x.shape)
        values = []
        for value, at in zip(args[1:tensors], in_dims[1:tensors], strict=True):
            if at is not None:
                value = value.movedim(at, 0)
                value = value.reshape(size, *[1] * (ndim - 1)) if value.dim() == 1 else value
            values.append(value.expand(_slices(x, dim % ndim + 1)))
        return op(x, *values, dim % ndim + 1), 0

    return rule


_IMPLEMENTATIONS: dict[str, tuple[Any, Any, Any, int]] = {
    "project": (_project_cpu, _project_plain, lambda x, k, tau, dim: torch.empty_like(x), 3),
    "threshold": (_threshold_cpu, _threshold_plain, _threshold_fake, 3),
    "binary": (_binary_cpu, _binary_plain, lambda x, k, dim: torch.empty_like(x), 2),
}
for _name, (_cpu, _any_device, _fake, _tensors) in _IMPLEMENTATIONS.items():
    _library.impl(_name, _cpu, "CPU")
    _library.impl(_name, _any_device, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hypersimplex::{_name}", _fake, lib=_library)
    torch.library.register_vmap(
        f"hypersimplex::{_name}", _batched(getattr(torch.ops.hypersimplex, _name), _tensors), lib=_library
    )
_library.impl("project", project_triton, "CUDA")
_library.impl("threshold", threshold_triton, "CUDA")
