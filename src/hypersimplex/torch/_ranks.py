"""The ranks of a process group: their few collectives, and what must be agreed before the first that counts on it.

Only all_reduce and all_gather of equal shapes travel, which gloo and NCCL both have.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CALLS = ["hypersimplex_loss", "soft_assignment", "calibrate", "backward_in_chunks"]
CALLS += ["soft_topk", "threshold", "binary_argmax"]
_NUMBERS = 18  # that a rank tells: which call it makes, whether it can, and what else the call needs
_MESSAGE_BYTES = 512


@dataclass(frozen=True, slots=True)
class Ranks:
    group: Any
    rank: int
    size: int
    device: torch.device  # where collectives take tensors

    def sum(self, value: Tensor) -> Tensor:
        return self._reduce(value, dist.ReduceOp.SUM)

    def maximum(self, value: Tensor) -> Tensor:
        return self._reduce(value, dist.ReduceOp.MAX)

    def gather(self, value: Tensor, rows: list[int]) -> list[Tensor]:
        """The tensors of all ranks, of which the first dim may differ: rows says how."""
        padded = value.new_zeros((max(rows), *value.shape[1:]), device=self.device)
        padded[: value.shape[0]] = value.detach()
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded, group=self.group)
        return [part[:count].to(value.device) for part, count in zip(parts, rows, strict=True)]

    def sum_unless(self, refused: bool, value: Tensor) -> Tensor:
        """For backward passes: the sum, or an error on every rank if one of them wants the second derivative."""
        total = self.sum(torch.cat((value, value.new_full((1,), refused))))
        if refused or bool(total[-1] != 0):
            raise second_order()
        return total[:-1]

    def _reduce(self, value: Tensor, op: Any) -> Tensor:
        there = value.detach().to(self.device, copy=True).contiguous()
        dist.all_reduce(there, op=op, group=self.group)
        return there.to(value.device)


def members(group: Any, input: object) -> Ranks:
    """Who takes part: group is a process group, or True for the default one."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("group needs torch.distributed: call torch.distributed.init_process_group first")
    if group is True:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"group must be a process group, or True for the default one, got {group!r}")
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(f"group must hold this process, rank {dist.get_rank()}, got a group without it")
    return Ranks(group, rank, dist.get_world_size(group), _device(group, input))


def _device(group: Any, input: object) -> torch.device:
    backend = dist.get_backend(group)
    if backend == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    own = input.device if isinstance(input, Tensor) else torch.device("cpu")
    return torch.device("cpu") if backend == "gloo" else own


def exchange(
    ranks: Ranks,
    call: str,
    tell: Callable[[], tuple[T, Sequence[int] | Tensor]],
    explain: Callable[[T], Exception] | None = None,
) -> tuple[T, list[list[int]]]:
    """Let every rank know what the others tell of this call, before the first collective that counts on it.

    `tell` gives what this rank has read, and whole numbers for the others, of which the first is 1. Whatever may fail
    on one rank alone belongs there. If it raises, all ranks raise: that one its own error, the others one that names
    the rank and its error. So none of them waits, and if they catch the error, they are in step. Where only the device
    knows of a failure, the first number is 0, and `explain` says what it was.

    Return what was read and, for each number, its values on all ranks.
    """
    own: Any = None
    error: Exception | None = None
    told = torch.zeros(_NUMBERS, dtype=torch.int64, device=ranks.device)
    told[0] = CALLS.index(call)
    try:
        own, numbers = tell()
        told[1 : 1 + len(numbers)] = torch.as_tensor(numbers, device=ranks.device)
    except Exception as found:
        error = found
    calls, fine, *rest = torch.stack(ranks.gather(told, [_NUMBERS] * ranks.size), dim=1).tolist()
    if len(set(calls)) > 1:
        raise RuntimeError(f"every rank must make the same call, got {[CALLS[at] for at in calls]}") from error
    if not all(fine):
        if error is None and not fine[ranks.rank]:
            assert explain is not None
            error = explain(own)
        _raise_failure(ranks, error, fine.index(0))
    return own, rest


def together(ranks: Ranks | None, call: str, step: Callable[[], T]) -> T:
    """What a step gives. If it fails on one rank, all ranks raise."""
    return step() if ranks is None else exchange(ranks, call, lambda: (step(), [1]))[0]


def _raise_failure(ranks: Ranks, error: Exception | None, failed: int) -> None:
    """The rank that failed raises its own error, the others say which one failed and why."""
    text = f"{type(error).__name__}: {error}".encode()[:_MESSAGE_BYTES] if error is not None else b""
    message = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
    message[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    parts = ranks.gather(message.to(ranks.device), [_MESSAGE_BYTES] * ranks.size)
    if error is not None:
        raise error
    said = bytes(parts[failed].tolist()).rstrip(b"\0").decode(errors="replace")
    raise RuntimeError(f"rank {failed} failed: {said}")


def same(rule: str, values: list[Any]) -> None:
    if len(set(values)) > 1:
        raise ValueError(f"{rule} on every rank, got {values}")


def same_dtype(codes: list[int]) -> None:
    same("input must have the same dtype", [str(DTYPES[code]) for code in codes])


def same_values(name: str, prints: list[int]) -> None:
    """That all ranks have the same fingerprint of an argument."""
    for rank, value in enumerate(prints):
        if value != prints[0]:
            raise ValueError(f"{name} must be the same on every rank, got another on rank {rank} than on rank 0")


def dtype_code(dtype: torch.dtype) -> int:
    if dtype not in DTYPES:
        raise TypeError(f"input must be float16, bfloat16, float32 or float64, got {dtype}")
    return DTYPES.index(dtype)


def fingerprint(value: Any) -> int:
    """Of numbers, the same for 1, 1.0 and a tensor of 1."""
    return zlib.crc32(np.ascontiguousarray(value, dtype=np.float64).tobytes())


def second_order() -> RuntimeError:
    return RuntimeError("with group, create_graph=True is not possible: the second derivative needs all ranks")


def refuse_second_order() -> None:
    """For backward passes: a part of the second derivative would be missing without a word."""
    if torch.is_grad_enabled():
        raise second_order()
