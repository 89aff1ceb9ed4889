"""The registered operators, for compilation, transforms and modes: they pick a backend when they run.

    hypersimplex::project(x, k, tau, dim, curve)    the projection and its thresholds, without a gradient of their own
    hypersimplex::binary(x, k, dim)
    hypersimplex::box(x, total, lower, upper, weight, tau, at_most)    slices along the last dim; the others broadcast
    hypersimplex::segments(x, offsets, k, tau, curve)    rows of different lengths
    hypersimplex::assign(x, k, capacity, tau)    the assignment, its biases, and the inverse its gradients need

k and tau are tensors, 0-d or of the slices' shape. Gradients are attached outside, by _projection.py and assignment.py.
"""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _assignment_rows
from hypersimplex.torch._boundary import computed, slices, widest
from hypersimplex.torch.backends import pick

_library = torch.library.Library("hypersimplex", "DEF")
_library.define('project(Tensor x, Tensor k, Tensor tau, int dim, str curve="ramp") -> (Tensor, Tensor)')
_library.define("binary(Tensor x, Tensor k, int dim) -> Tensor")
_library.define(
    "box(Tensor x, Tensor total, Tensor lower, Tensor upper, Tensor weight, Tensor tau, bool at_most)"
    " -> (Tensor, Tensor)"
)
_library.define('segments(Tensor x, Tensor offsets, Tensor k, Tensor tau, str curve="ramp") -> Tensor')
_library.define("assign(Tensor x, Tensor k, Tensor capacity, Tensor tau) -> (Tensor, Tensor, Tensor)")


def _project(x: Tensor, k: Tensor, tau: Tensor, dim: int, curve: str = "ramp") -> tuple[Tensor, Tensor]:
    y, mu = pick(x, curve).project(x, k, tau, dim, curve=curve)
    return _as_promised(y, x), mu


def _as_promised(y: Tensor, x: Tensor) -> Tensor:
    """y with the strides that empty_like gives: what the fake kernels promise."""
    promised = torch.empty_like(x, dtype=y.dtype)
    return y if y.stride() == promised.stride() else promised.copy_(y)


def _segments(x: Tensor, offsets: Tensor, k: Tensor, tau: Tensor, curve: str = "ramp") -> Tensor:
    return pick(x, curve).segments(x, offsets, k, tau, curve=curve)


def _fake_project(x: Tensor, k: Tensor, tau: Tensor, dim: int, curve: str = "ramp") -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(slices(x, dim), dtype=widest(x.device))


def _assign(x: Tensor, k: Tensor, capacity: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, bias, inverse = _assignment_rows.solve(_assignment_rows.rows_of(x, k, tau), x, capacity)
    assert inverse is not None
    return _as_promised(y.to(x.dtype), x), bias, inverse


def _fake_assign(x: Tensor, k: Tensor, capacity: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    experts, wide = x.shape[1], computed(x.dtype)
    return torch.empty_like(x), x.new_empty(experts, dtype=wide), x.new_empty((experts, experts), dtype=wide)


def _one_by_one(info: Any, in_dims: tuple[int | None, ...], *args: Tensor) -> tuple[Any, Any]:
    """A vmap rule: the assignments of a batch have no rows in common."""
    each = [
        arg.unbind(at) if at is not None else [arg] * info.batch_size for arg, at in zip(args, in_dims, strict=True)
    ]
    results = [assign(*one) for one in zip(*each, strict=True)]
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0, 0, 0)


def _batched(op: Any, numbers: int, results: int) -> Any:
    """A vmap rule: the batch becomes one more dim in front, of x and of the slices, which have so many numbers each."""

    def rule(info: Any, in_dims: tuple[int | None, ...], x: Tensor, *rest: Any) -> tuple[Any, Any]:
        values, dim, curve = rest[:numbers], rest[numbers], rest[numbers + 1 :]
        size = info.batch_size
        ndim = x.dim() - (in_dims[0] is not None)
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(size, *x.shape)
        wide = []
        for value, at in zip(values, in_dims[1:], strict=False):
            if at is not None:
                value = value.movedim(at, 0)
                value = value.reshape(size, *[1] * (ndim - 1)) if value.dim() == 1 else value
            wide.append(value.expand(slices(x, dim % ndim + 1)))
        return op(x, *wide, dim % ndim + 1, *curve), 0 if results == 1 else (0,) * results

    return rule


def _box(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    y, mu = pick(x).box(x, *rest)
    return _as_promised(y, x), mu


def _fake_box(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    y = torch.empty_like(x, dtype=computed(x.dtype))
    return y, x.new_empty(x.shape[:-1], dtype=widest(x.device))


def _batched_box(info: Any, in_dims: tuple[int | None, ...], x: Tensor, *rest: Any) -> tuple[Any, Any]:
    """The batch becomes one more dim in front of x; what has none broadcasts as it is."""
    *values, at_most = rest
    ndim = x.dim() - (in_dims[0] is not None)
    x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(info.batch_size, *x.shape)
    for i, at in enumerate(in_dims[1:-1]):
        if at is not None:
            value = values[i].movedim(at, 0)
            own = ndim - (i in (0, 4))  # total and tau have one number for each slice
            values[i] = value.reshape(info.batch_size, *[1] * (own - value.dim() + 1), *value.shape[1:])
    return box(x, *values, at_most), (0, 0)


def _fake_like(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x)


def _batched_segments(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
    """The segments of the whole batch, one after the other."""
    size, tensors, curve = info.batch_size, given[:4], given[4:]
    x, offsets, k, tau = (
        t.expand(size, *t.shape) if at is None else t.movedim(at, 0) for t, at in zip(tensors, in_dims, strict=False)
    )
    n, rows = x.shape[1], offsets.shape[1] - 1
    starts = offsets[:, :-1] + n * torch.arange(size, device=x.device).unsqueeze(1)
    ends = torch.cat((starts.reshape(-1), starts.new_tensor([size * n])))
    k, tau = ((t.unsqueeze(1) if t.dim() == 1 else t).expand(size, rows).reshape(-1) for t in (k, tau))
    return segments(x.reshape(-1), ends, k, tau, *curve).reshape(size, n), 0


_ops = torch.ops.hypersimplex
project, binary, box, segments, assign = _ops.project, _ops.binary, _ops.box, _ops.segments, _ops.assign
for _name, _run, _fake, _rule in (
    ("project", _project, _fake_project, _batched(project, 2, 2)),
    ("binary", lambda x, *rest: _as_promised(pick(x).binary(x, *rest), x), _fake_like, _batched(binary, 1, 1)),
    ("box", _box, _fake_box, _batched_box),
    ("segments", _segments, _fake_like, _batched_segments),
    ("assign", _assign, _fake_assign, _one_by_one),
):
    _library.impl(_name, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hypersimplex::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"hypersimplex::{_name}", _rule, lib=_library)
