"""A peer on one problem, as two steps to time: forward, and forward with backward."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.peers import Function, Peer


@dataclass(frozen=True)
class Steps:
    forward: Callable[[], Any]
    both: Callable[[], Any]


def steps(peer: Peer, function: Function, x: Tensor, v: Tensor, k: float, dim: int = -1) -> Steps:
    k = 1 if peer.only_k_one else k
    return _jax_steps(function, x, v, k, dim) if peer.jax else _torch_steps(function, x, v, k, dim)


def _torch_steps(function: Function, x: Tensor, v: Tensor, k: float, dim: int) -> Steps:
    wanted = x.detach().requires_grad_() if x.is_floating_point() else x

    def both() -> tuple[Tensor, Tensor]:
        y = function(wanted, k, dim)
        return y, torch.autograd.grad(y, wanted, v.to(y.dtype))[0]

    return Steps(lambda: function(x, k, dim), both)


def _jax_steps(function: Function, x: Tensor, v: Tensor, k: float, dim: int) -> Steps:
    jax = importlib.import_module("jax")

    def along_last(array: Any) -> Any:
        return jax.numpy.moveaxis(function(jax.numpy.moveaxis(array, dim, -1), k), -1, dim)

    @jax.jit  # type: ignore[untyped-decorator]
    def both(array: Any, incoming: Any) -> Any:
        y, pull = jax.vjp(along_last, array)
        return y, pull(incoming.astype(y.dtype))[0]

    forward = jax.jit(along_last)
    array, incoming = (_to_jax(jax, tensor) for tensor in (x, v))
    ready = jax.block_until_ready
    return Steps(lambda: ready(forward(array)), lambda: ready(both(array, incoming)))


def _to_jax(jax: Any, x: Tensor) -> Any:
    if x.dtype in (torch.float16, torch.bfloat16):
        return jax.numpy.asarray(x.float().numpy()).astype(str(x.dtype).removeprefix("torch."))
    return jax.numpy.asarray(x.numpy())


def array(result: Any) -> np.ndarray[Any, Any]:
    """What a peer returned, in float64."""
    if isinstance(result, Tensor):
        return result.detach().double().numpy()
    return np.asarray(result, np.float64)


def dtype_name(result: Any) -> str:
    return str(result.dtype).removeprefix("torch.")


def default_k(n: int) -> int:
    """A tenth of the entries; a whole number, since some peers know no other."""
    return max(1, n // 10)
