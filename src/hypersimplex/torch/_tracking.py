"""The running averages of HyperSimplexLoss."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _kernel
from hypersimplex.torch._targets import Outcome

NAMES = ("threshold", "seen", "share", "batches")


def new_buffers(classes: int, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    # Not inference tensors, whatever the mode: training must be able to go on with them.
    with torch.inference_mode(False):
        sizes = {"threshold": classes, "seen": classes, "share": classes, "batches": 1}
        return {name: torch.zeros(size, dtype=dtype, device=device) for name, size in sizes.items()}


def classes_of(outcome: Outcome) -> int:
    if outcome.numbers is not None:
        return len(outcome.numbers) // 2
    assert outcome.threshold is not None
    return outcome.threshold.shape[0]


def track(buffers: dict[str, Any], outcome: Outcome, momentum: float | None, with_share: bool = True) -> None:
    """Move the averages in place: with the kernel's numbers by the kernel, otherwise by torch operations."""
    threshold, seen, share, batches = buffers["threshold"], buffers["seen"], buffers["share"], buffers["batches"]
    _, mu, k, samples, numbers, _ = outcome
    if numbers is None:
        return _track(threshold, seen, share, batches, mu, k, samples, momentum, with_share)
    assert isinstance(samples, int)
    if samples == 0:  # every one was ignored
        return None
    dtype = threshold.dtype
    if not (threshold.is_cpu and (dtype is torch.float32 or dtype is torch.float64)):
        mu, k = torch.frombuffer(numbers, dtype=torch.float64).view(2, -1).to(threshold.device)
        return _track(threshold, seen, share, batches, mu, k, samples, momentum, with_share)
    address, length = numbers.buffer_info()
    _kernel.track_at(
        dtype is torch.float64, address, address + 4 * length, length // 2, samples, momentum or 0.0, with_share,
        threshold.data_ptr(), seen.data_ptr(), share.data_ptr(), batches.data_ptr(),
    )  # fmt: skip


@torch.no_grad()
def _track(
    threshold: Tensor, seen: Tensor, share: Tensor, batches: Tensor,
    mu: Any, k: Any, samples: Tensor | int, momentum: float | None, with_share: bool,
) -> None:  # fmt: skip
    counts: Any = samples > 0
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
