"""What the ranks of a loss tell each other of their batches, before anything large is sent."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _batch
from hypersimplex.torch._batch import Batch, Settings, per_class
from hypersimplex.torch._boundary import check_layout, computed, has_memory, is_eager, kind
from hypersimplex.torch._ranks import Ranks, dtype_code, exchange, fingerprint, same, same_dtype, same_values
from hypersimplex.torch.decisions import is_multilabel

_NUMBERS = 9  # of a rank's batch; then one for each setting

Check = Callable[[Tensor, Tensor, int], None]  # of a module: input, target and the number of classes


class Read(NamedTuple):
    """What a rank has read of its own call."""

    batch: Batch
    settings: Settings


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


def agree(
    ranks: Ranks, input: Tensor, target: Tensor, settings: Settings, check: Check | None = None
) -> tuple[Batch, Settings, Agreement]:
    """Read this rank's call; raise on every rank if one of them cannot or if their calls do not fit together."""

    def tell() -> tuple[Read, Tensor]:
        read = _read(input, target, settings, check)
        return read, _describe(*read, target, ranks.device)

    (batch, settings), table = exchange(ranks, "hypersimplex_loss", tell, _explain)
    classes, dtypes, dense, rows, kept, finite, composed, multilabel, *given = table
    same("input must have the same number of classes", classes)
    same_dtype(dtypes)
    same("target must be of the same kind", ["dense" if d else "class indices" for d in dense])
    for name, prints in zip(Settings._fields, given, strict=False):
        same_values(name, prints)
    return batch, settings, Agreement(rows, kept, all(finite), any(composed), any(multilabel))


def _read(input: Tensor, target: Tensor, settings: Settings, check: Check | None) -> Read:
    if not is_eager():
        raise RuntimeError("group does not work under torch.compile, torch.func or forward mode")
    settings = _batch.plain(settings)
    _batch.check(input, target, settings)
    for name, value in [("input", input), ("target", target), *settings._asdict().items()]:
        if isinstance(value, Tensor):
            check_layout(name, value)
            if value.is_meta:
                raise _checks.no_values(name, kind(value))
            has_memory(name, value)
    if input.is_floating_point():
        dtype_code(input.dtype)
    batch = _batch.fit(input, target)
    if check is not None:
        check(input, target, batch.classes)
    if input.is_cpu and settings.prior is not None:
        _batch.check_prior(per_class("prior", settings.prior, batch.classes, input.device))
    if input.is_cpu and batch.dense:
        _batch.check_dense(batch.target)
    return Read(batch, settings)


def _describe(batch: Batch, settings: Settings, target: Tensor, device: torch.device) -> Tensor:
    """What a rank tells the others of its call."""
    classes, rows = batch.classes, math.prod(batch.shape)
    told = [1, classes, dtype_code(batch.logits.dtype), int(batch.dense), rows, rows, 0]
    told += [int(_must_see_inside(batch, settings)), 0]
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


def _must_see_inside(batch: Batch, settings: Settings) -> bool:
    """Whether this rank needs more than sums: a loss for each sample, or a gradient to more than the logits."""
    learned = _batch.needs_gradient(batch.target, *settings)
    return settings.reduction == "none" or settings.label_smoothing > 0 or learned


def _explain(read: Read) -> Exception:
    """What the device found wrong."""
    _, wrong = _kept_and_wrong(*read)
    return _checks.bad_label(int(read.batch.target[wrong][0]), read.batch.classes)


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
    return fingerprint(per_class(name, value, classes, torch.device("cpu")).detach())
