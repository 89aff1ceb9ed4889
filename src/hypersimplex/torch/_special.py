"""Inputs that stand for tensors: proxies, which torch.fx records as a call, and DTensors, which lie on many ranks."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch._boundary import slices
from hypersimplex.torch.decisions import is_multilabel


def call(function: Callable[..., Any], input: Any, *rest: Any, **how: str) -> Any:
    """What the function gives for such an input; None if it is not one."""
    for value in (input, *rest):
        if isinstance(value, torch.fx.Proxy):
            return value.tracer.create_proxy("call_function", function, (input, *rest), how)
    return _by_slices(partial(function, **how), input, *rest) if is_dtensor(input) else None


def is_dtensor(value: object) -> bool:
    module = sys.modules.get("torch.distributed.tensor")  # without it there can be none
    return module is not None and isinstance(value, module.DTensor)


def _by_slices(function: Callable[..., Any], input: Any, k: Any, *rest: Any) -> Any:
    """Every rank computes its slices, whole ones: rest is (tau, dim), or dim alone."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    *numbers, dim = k, *rest
    along = range(input.dim())[dim]
    if any(type(p) not in (Shard, Replicate) or p == Shard(along) for p in input.placements):
        places = list(input.placements)
        raise ValueError(f"input must be sharded along another dim than {dim}, or replicated, got {places}")
    mesh, shape = input.device_mesh, slices(input, along)
    outer = [p if p == Replicate() else Shard(p.dim - (p.dim > along)) for p in input.placements]

    def local(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not isinstance(value, DTensor):
            value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return value.expand(shape).redistribute(placements=outer).to_local()

    found = function(input.to_local(), *map(local, numbers), dim)
    whole = found.dim() == input.dim()
    return _joined(found, mesh, input.placements if whole else outer, input.shape if whole else shape)


def _joined(local: Tensor, mesh: Any, placements: Any, shape: torch.Size) -> Any:
    from torch.distributed.tensor import DTensor

    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)


def loss(input: Any, target: Any, settings: Any, group: Any, compute: Callable[..., Any]) -> Any:
    """The loss of the whole batch, samples along dim 0 sharded over one dim of the mesh or over none.

    With a group a rank's gradient comes multiplied by the number of ranks, for an average that does not happen here.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    from hypersimplex.torch.distributed import scaled

    mesh, placements = input.device_mesh, list(input.placements)
    at = [i for i, p in enumerate(placements) if p == Shard(0)]
    if len(at) > 1 or any(p not in (Replicate(), Shard(0)) for p in placements):
        rule = "input must be sharded along dim 0 over one dim of the mesh, or replicated"
        raise ValueError(f"{rule}, got {placements}")
    if group is not None:
        raise ValueError(f"group must be None for a DTensor, whose mesh says which ranks share the batch, got {group}")
    if isinstance(target, DTensor):
        target = target.redistribute(placements=placements).to_local()
    elif at:
        raise TypeError(f"target must be a DTensor as input is, got {type(target).__name__}")
    local = input.to_local()
    if at and settings.reduction != "none":
        local = scaled(local, 1 / mesh.size(at[0]))
    outcome = compute(local, target, settings, mesh.get_group(at[0]) if at else None)
    if not at and target.shape == local.shape:
        outcome = outcome._replace(multilabel=is_multilabel(target))
    if settings.reduction == "none":
        shape = input.shape[:1] + input.shape[2:]
        return outcome._replace(loss=_joined(outcome.loss, mesh, placements, shape))
    return outcome._replace(loss=_joined(outcome.loss, mesh, [Replicate()] * mesh.ndim, torch.Size([])))
