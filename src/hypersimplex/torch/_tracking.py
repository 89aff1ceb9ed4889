"""The running averages of HyperSimplexLoss."""

from array import array
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hypersimplex import _checks, _kernel
from hypersimplex.torch._batch import Outcome
from hypersimplex.torch._boundary import FLOATS, is_recorded

NAMES = ("threshold", "seen", "share", "batches")
NAMES_SET = frozenset(NAMES)


def new_buffers(classes: int, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    # Not inference tensors, whatever the mode: training must be able to go on with them.
    with torch.inference_mode(False):
        sizes = {"threshold": classes, "seen": classes, "share": classes, "batches": 1}
        return {name: torch.zeros(size, dtype=dtype, device=device) for name, size in sizes.items()}


def can_track(outcome: Outcome) -> bool:
    """Not what a transform computes with or a fake tensor: buffers hold numbers."""
    return type(outcome.numbers) is array or (not is_recorded() and type(outcome.numbers) is Tensor)


def track(buffers: dict[str, Any], outcome: Outcome, momentum: float | None, with_share: bool = True) -> None:
    """Move the averages in place: by the kernel where it made the numbers, otherwise by torch operations."""
    numbers, samples = outcome.numbers, outcome.samples
    threshold, seen, share, batches = buffers["threshold"], buffers["seen"], buffers["share"], buffers["batches"]
    dtype = threshold.dtype
    if isinstance(numbers, array) and isinstance(samples, int) and dtype in FLOATS:
        at, length = numbers.buffer_info()
        classes = length // 2
        if (
            _is_plain(threshold, dtype, classes)
            and _is_plain(seen, dtype, classes)
            and _is_plain(share, dtype, classes)
            and _is_plain(batches, dtype, 1)
        ):
            if samples:  # or every one was ignored
                _kernel.track_at(
                    dtype is torch.float64, at, at + 8 * classes, classes, samples, momentum or 0.0, with_share,
                    threshold.data_ptr(), seen.data_ptr(), share.data_ptr(), batches.data_ptr(),
                )  # fmt: skip
            return
    _check(buffers, outcome.classes)
    with torch.no_grad():
        mu, k = forward_ad.unpack_dual(outcome.mu_and_k).primal.to(threshold.device)
        _track(buffers, mu, k, samples, momentum, with_share)


def _is_plain(buffer: Any, dtype: torch.dtype, size: int) -> bool:
    """Whether the kernel may write there: a user may have put anything in its place."""
    return (
        type(buffer) is Tensor
        and buffer.dtype is dtype
        and buffer.is_cpu
        and buffer.is_contiguous()
        and buffer.numel() == size
    )


def _check(buffers: dict[str, Any], classes: int) -> None:
    for name in NAMES:
        value = buffers[name]
        if value is None:
            raise TypeError(f"{name} must be a tensor, got None")
        if tuple(value.shape) != ((classes,) if name != "batches" else (1,)):
            raise _checks.wrong_shape(name, (classes,) if name != "batches" else (1,), value.shape)
        if name in ("threshold", "share") and not value.is_floating_point():
            raise _checks.not_floating(name, value.dtype)


def _track(
    buffers: dict[str, Any], mu: Tensor, k: Tensor, samples: Any, momentum: float | None, with_share: bool
) -> None:
    threshold, seen, share, batches = (buffers[name] for name in NAMES)
    counts = samples > 0
    if isinstance(samples, Tensor):
        samples = samples.clamp(min=1)
    elif not counts:
        return
    # A class without a positive or without a negative has no threshold in this batch; a NaN must not spoil the average.
    moves = (k > 0) & (k < samples) & mu.isfinite()
    seen += moves
    threshold += torch.where(moves, _rate(seen, momentum) * (mu - threshold), 0).to(threshold.dtype)
    if with_share:
        batches += counts
        share += (_rate(batches, momentum) * (k / samples - share) * counts).to(share.dtype)


def _rate(count: Tensor, momentum: float | None) -> Tensor:
    """1/count, the plain average, until momentum takes over."""
    return (1 / count.clamp(min=1)).clamp(min=momentum or 0.0)
