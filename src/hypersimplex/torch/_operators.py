"""The registered operators, for compilation, transforms and modes: they pick a backend when they run.

    hypersimplex::project(x, k, tau, dim)    the projection and its thresholds, without a gradient of their own
    hypersimplex::binary(x, k, dim)

k and tau are tensors, 0-d or of the slices' shape. Gradients are attached outside, by _projection.py.
"""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch._boundary import slices, widest
from hypersimplex.torch.backends import pick

_library = torch.library.Library("hypersimplex", "DEF")
_library.define("project(Tensor x, Tensor k, Tensor tau, int dim) -> (Tensor, Tensor)")
_library.define("binary(Tensor x, Tensor k, int dim) -> Tensor")


def _project(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    y, mu = pick(x).project(x, k, tau, dim)
    assert y is not None
    assert mu is not None
    return _as_promised(y, x), mu


def _binary(x: Tensor, k: Tensor, dim: int) -> Tensor:
    return _as_promised(pick(x).binary(x, k, dim), x)


def _as_promised(y: Tensor, x: Tensor) -> Tensor:
    """y with the strides that empty_like gives: what the fake kernels promise."""
    promised = torch.empty_like(x)
    return y if y.stride() == promised.stride() else promised.copy_(y)


def _fake_project(x: Tensor, k: Tensor, tau: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(slices(x, dim), dtype=widest(x.device))


def _fake_binary(x: Tensor, k: Tensor, dim: int) -> Tensor:
    return torch.empty_like(x)


def _batched(op: Any, results: int) -> Any:
    """A vmap rule: the batch becomes one more dim in front, of x and of the slices."""

    def rule(info: Any, in_dims: tuple[int | None, ...], x: Tensor, *rest: Any) -> tuple[Any, Any]:
        *values, dim = rest
        size = info.batch_size
        ndim = x.dim() - (in_dims[0] is not None)
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(size, *x.shape)
        wide = []
        for value, at in zip(values, in_dims[1:-1], strict=True):
            if at is not None:
                value = value.movedim(at, 0)
                value = value.reshape(size, *[1] * (ndim - 1)) if value.dim() == 1 else value
            wide.append(value.expand(slices(x, dim % ndim + 1)))
        return op(x, *wide, dim % ndim + 1), 0 if results == 1 else (0,) * results

    return rule


for _name, _run, _fake, _results in (("project", _project, _fake_project, 2), ("binary", _binary, _fake_binary, 1)):
    _library.impl(_name, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hypersimplex::{_name}", _fake, lib=_library)
    torch.library.register_vmap(
        f"hypersimplex::{_name}", _batched(getattr(torch.ops.hypersimplex, _name), _results), lib=_library
    )

project = torch.ops.hypersimplex.project
binary = torch.ops.hypersimplex.binary
