"""The running averages of HyperSimplexLoss."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hypersimplex import _checks, _kernel
from hypersimplex.torch._batch import Outcome
from hypersimplex.torch._boundary import FLOATS, is_eager, is_recorded

NAMES = ("threshold", "seen", "share", "batches")


def new_buffers(classes: int, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    # Not inference tensors, whatever the mode: training must be able to go on with them.
    with torch.inference_mode(False):
        sizes = {"threshold": classes, "seen": classes, "share": classes, "batches": 1}
        return {name: torch.zeros(size, dtype=dtype, device=device) for name, size in sizes.items()}


def can_track(outcome: Outcome) -> bool:
    """Not what a transform computes with or a fake tensor: buffers hold numbers."""
    return not is_recorded() and type(outcome.mu_and_k) is Tensor


def track(buffers: dict[str, Any], outcome: Outcome, momentum: float | None, with_share: bool = True) -> None:
    """Move the averages in place: by the kernel where it made the numbers, otherwise by torch operations."""
    mu_and_k, samples = outcome.mu_and_k, outcome.samples
    classes = mu_and_k.shape[1]
    if isinstance(samples, int) and mu_and_k.is_cpu and is_eager() and _are_plain(buffers, classes):
        if samples:  # or every one was ignored
            threshold, at = buffers["threshold"], mu_and_k.data_ptr()
            _kernel.track_at(
                threshold.dtype is torch.float64, at, at + 8 * classes, classes, samples, momentum or 0.0, with_share,
                *(buffers[name].data_ptr() for name in NAMES),
            )  # fmt: skip
        return
    _check(buffers, classes)
    with torch.no_grad():
        mu, k = forward_ad.unpack_dual(mu_and_k).primal.to(buffers["threshold"].device)
        _track(buffers, mu, k, samples, momentum, with_share)


def _are_plain(buffers: dict[str, Any], classes: int) -> bool:
    """Whether the kernel may write to them: a user may have put anything in their place."""
    dtype = buffers["threshold"].dtype
    for name in NAMES:
        value = buffers[name]
        if not (
            type(value) is Tensor
            and value.dtype is dtype
            and value.is_cpu
            and value.is_contiguous()
            and value.shape == ((classes,) if name != "batches" else (1,))
            and value.data_ptr()
        ):
            return False
    return dtype in FLOATS


def _check(buffers: dict[str, Any], classes: int) -> None:
    for name in NAMES:
        value = buffers[name]
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
