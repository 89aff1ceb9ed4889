"""Inputs that stand for tensors: torch.fx's proxies, recorded as a call; DTensors, on many ranks; nested tensors."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _nested
from hypersimplex.torch._boundary import slices
from hypersimplex.torch.decisions import is_multilabel


def call(function: Callable[..., Any], input: Any, *rest: Any, **how: str) -> Any:
    """What the function gives for such an input; None if it is not one."""
    for value in (input, *rest):
        if isinstance(value, torch.fx.Proxy):
            return value.tracer.create_proxy("call_function", function, (input, *rest), how)
    if _nested.is_jagged(input):
        return _nested.call(function, input, *rest, **how)
    return _by_slices(partial(function, **how), input, *rest) if is_dtensor(input) else None


def is_dtensor(value: object) -> bool:
    module = sys.modules.get("torch.distributed.tensor")  # without it there can be none
    return module is not None and isinstance(value, module.DTensor)


def _by_slices(function: Callable[..., Any], input: Any, k: Any, *rest: Any) -> Any:
    """Every rank computes its slices, or its part of them: rest is (tau, dim), or dim alone."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    from hypersimplex.torch.distributed import scaled

    *numbers, dim = k, *rest
    along = range(input.dim())[dim]
    places, mesh, shape = list(input.placements), input.device_mesh, slices(input, along)
    if any(type(p) not in (Shard, Replicate) for p in places):
        raise ValueError(f"input must be sharded or replicated (its redistribute does so), got {places}")
    at = [i for i, p in enumerate(places) if p == Shard(along)]
    if len(at) > 1:
        raise ValueError(f"input must be sharded along dim {dim} over one dim of the mesh, got {places}")
    outer = [Shard(p.dim - (p.dim > along)) if type(p) is Shard and p.dim != along else Replicate() for p in places]

    def local(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if not isinstance(value, DTensor):
            value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return value.expand(shape).redistribute(placements=outer).to_local()

    over_ranks = {"group": mesh.get_group(at[0])} if at else {}
    found = function(input.to_local(), *map(local, numbers), dim, **over_ranks)
    if found.dim() == input.dim():
        return _joined(found, mesh, places, input.shape)
    if at:  # one threshold, which every rank has: its gradient comes to each of them, and they are added up
        found = scaled(found, 1 / mesh.size(at[0]))
    return _joined(found, mesh, outer, shape)


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
