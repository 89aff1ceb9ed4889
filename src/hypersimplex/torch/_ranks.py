"""The ranks of a process group: the few collectives the loss uses, and what must be agreed before the first large one.

Only all_reduce and all_gather of equal shapes travel, which gloo and NCCL both have.
"""

import math
import zlib
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch._batch import Batch, Settings, per_class
from hypersimplex.torch._boundary import computed
from hypersimplex.torch.decisions import is_multilabel

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
_NUMBERS = 9  # of a rank's batch; then one for each setting
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


@dataclass(frozen=True, slots=True)
class Agreement:
    """What every rank knows of the others."""

    rows: list[int]  # samples times positions, ignored ones included
    kept: list[int]  # those that are not ignored
    finite: bool  # all logits and dense targets
    composed: bool  # some rank must see inside the loss
    multilabel: bool  # some rank has dense targets of several dims that do not sum to 1

    @property
    def samples(self) -> int:
        return sum(self.kept)


def describe(batch: Batch, target: Tensor, settings: Settings, composed: bool, device: torch.device) -> Tensor:
    """What a rank tells the others of its call. Whatever can fail must fail here, or in reading the batch."""
    classes, rows = batch.classes, math.prod(batch.shape)
    told = [1, classes, DTYPES.index(batch.logits.dtype), int(batch.dense), rows, rows, 0, int(composed), 0]
    told += [_fingerprint(name, value, classes) for name, value in settings._asdict().items()]
    numbers = torch.tensor(told, dtype=torch.int64, device=device)
    # These stay on the device: the exchange is the only point where the host waits for them.
    numbers[6] = _is_finite(batch).to(numbers)
    if batch.dense:
        numbers[8] = is_multilabel(target).to(numbers)
    else:
        kept, wrong = _kept_and_wrong(batch, settings)
        numbers[0] -= wrong.any().to(numbers)
        numbers[5] = kept.sum().to(numbers)
    return numbers


def agree(
    ranks: Ranks, told: Tensor | None, batch: Batch | None, settings: Settings, error: Exception | None
) -> Agreement:
    """Exchange what the ranks tell; raise on every rank if one of them failed or they do not fit together."""
    size = _NUMBERS + len(Settings._fields)
    told = torch.zeros(size, dtype=torch.int64, device=ranks.device) if told is None else told
    table = torch.stack(ranks.gather(told, [size] * ranks.size), dim=1).tolist()
    ok, classes, dtypes, dense, rows, kept, finite, composed, multilabel, *given = table
    if not all(ok):
        _raise_failure(ranks, batch, settings, error, ok)
    _same("input must have the same number of classes", classes)
    _same("input must have the same dtype", [str(DTYPES[code]) for code in dtypes])
    _same("target must be of the same kind", ["dense" if d else "class indices" for d in dense])
    for name, prints in zip(Settings._fields, given, strict=True):
        for rank, value in enumerate(prints):
            if value != prints[0]:
                raise ValueError(f"{name} must be the same on every rank, got another on rank {rank} than on rank 0")
    return Agreement(rows, kept, all(finite), any(composed), any(multilabel))


def _kept_and_wrong(batch: Batch, settings: Settings) -> tuple[Tensor, Tensor]:
    """Which labels are not ignored, and which of them are no class."""
    kept = batch.target != settings.ignore_index
    return kept, kept & ((batch.target < 0) | (batch.target >= batch.classes))


def _is_finite(batch: Batch) -> Tensor:
    """One pass: an infinity or a NaN makes the sum infinite or NaN. Sums that overflow only cost time."""
    wide = computed(batch.logits.dtype)
    total = batch.logits.detach().sum(dtype=wide)
    if batch.dense:
        total = total + batch.target.detach().sum(dtype=wide)
    return torch.isfinite(total)


def _fingerprint(name: str, value: Any, classes: int) -> int:
    """The same for 1, 1.0 and a tensor of ones."""
    if value is None or name in ("ignore_index", "reduction"):
        return zlib.crc32(repr(value).encode())
    each = per_class(name, value, classes, torch.device("cpu")).detach().contiguous()
    return zlib.crc32(each.numpy().tobytes())


def _same(rule: str, values: list[Any]) -> None:
    if len(set(values)) > 1:
        raise ValueError(f"{rule} on every rank, got {values}")


def _raise_failure(
    ranks: Ranks, batch: Batch | None, settings: Settings, error: Exception | None, ok: list[int]
) -> None:
    """The rank that failed raises its own error, the others say which one failed and why."""
    if error is None and not ok[ranks.rank]:
        assert batch is not None
        _, wrong = _kept_and_wrong(batch, settings)
        error = _checks.bad_label(int(batch.target[wrong][0]), batch.classes)
    text = f"{type(error).__name__}: {error}".encode()[:_MESSAGE_BYTES] if error is not None else b""
    message = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
    message[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    parts = ranks.gather(message.to(ranks.device), [_MESSAGE_BYTES] * ranks.size)
    if error is not None:
        raise error
    failed = ok.index(0)
    said = bytes(parts[failed].tolist()).rstrip(b"\0").decode(errors="replace")
    raise RuntimeError(f"rank {failed} failed: {said}")


def refuse_second_order() -> None:
    """For backward passes: a part of the second derivative would be missing without a word."""
    if torch.is_grad_enabled():
        raise RuntimeError("with group, create_graph=True is not possible: the second derivative needs all ranks")
