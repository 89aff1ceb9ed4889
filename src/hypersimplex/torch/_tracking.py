"""The running averages of HyperSimplexLoss: when a batch moves them, and how far."""

import sys
from array import array
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hypersimplex import _checks, _kernel
from hypersimplex.torch._batch import Outcome
from hypersimplex.torch._boundary import FLOATS, as_numbers, is_compiling, may_write

NAMES = ("threshold", "seen", "share", "samples")
NAMES_SET = frozenset(NAMES)
SPAN, LEAST = 1000.0, 0.1  # samples, and a batch's weight at least: measured by benchmarks/thresholds.py
UNPACKING = ("unpack_hook", "torch.utils.checkpoint")  # the function and its module

_task = torch._C._current_graph_task_id


def new_buffers(classes: int, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    # Not inference tensors, whatever the mode: training must be able to go on with them.
    with torch.inference_mode(False):
        sizes = {"threshold": classes, "seen": classes, "share": classes, "samples": 1}
        return {name: torch.zeros(size, dtype=dtype, device=device) for name, size in sizes.items()}


def can_track(outcome: Outcome, buffers: dict[str, Any]) -> bool:
    """A batch is counted if its loss can be differentiated, and once.

    Validation without gradients is not, nor is a batch under torch.func, unless that is given the buffers too. Where a
    graph is recorded to be run later it may hold the step, if there are buffers that it can move.
    """
    if not outcome.loss.requires_grad:
        return False
    if type(outcome.numbers) is array:
        return not is_recomputed()
    if is_compiling():
        return type(outcome.numbers) is Tensor or buffers.get("threshold") is not None
    numbers = outcome.numbers
    if type(numbers) is not Tensor or is_recomputed():
        return False
    return all(may_write(buffers.get(name), numbers) for name in (*NAMES, "multilabel"))


def is_recomputed() -> bool:
    """Whether a checkpoint computes again, in the backward pass, what was counted in the forward pass.

    Checkpoints that are not reentrant do so when autograd unpacks what they saved. The first pass of reentrant ones has
    no gradient, and their second one counts, whatever is nested in it.
    """
    frame: FrameType | None = sys._getframe() if _task() != -1 else None
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != UNPACKING:
        frame = frame.f_back
    return frame is not None


def track(
    buffers: dict[str, Any],
    outcome: Outcome,
    momentum: float | None,
    positions: int = 1,
    with_share: bool = True,
) -> None:
    """Move the averages in place: by the kernel where it made the numbers, otherwise by torch operations.

    A batch of N samples moves them by N/(samples so far), the plain average, but at least by momentum; without one, by
    N/SPAN, not below LEAST. Of N images whose pixels are classified the N counts, not the pixels, which are alike.
    """
    numbers, samples = outcome.numbers, outcome.samples
    threshold, seen, share, total = buffers["threshold"], buffers["seen"], buffers["share"], buffers["samples"]
    size: Any = samples / positions
    dtype = threshold.dtype
    if isinstance(numbers, array) and isinstance(samples, int) and dtype in FLOATS:
        at, length = numbers.buffer_info()
        classes = length // 2
        if (
            _is_plain(threshold, dtype, classes)
            and _is_plain(seen, dtype, classes)
            and _is_plain(share, dtype, classes)
            and _is_plain(total, dtype, 1)
        ):
            if samples:  # or every one was ignored
                least = min(max(size / SPAN, LEAST), 1.0) if momentum is None else momentum
                _kernel.track_at(
                    dtype is torch.float64, at, at + 8 * classes, classes, samples, size, least, with_share,
                    threshold.data_ptr(), seen.data_ptr(), share.data_ptr(), total.data_ptr(),
                )  # fmt: skip
            return
    _check(buffers, outcome.classes)
    # Not in no_grad, which an exported graph does not hold.
    mu, k = forward_ad.unpack_dual(outcome.mu_and_k).primal.detach().to(threshold.device)
    _track(buffers, mu, k, samples, size, momentum, with_share)


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
        if tuple(value.shape) != ((classes,) if name != "samples" else (1,)):
            raise _checks.wrong_shape(name, (classes,) if name != "samples" else (1,), value.shape)
        if name in ("threshold", "share") and not value.is_floating_point():
            raise _checks.not_floating(name, value.dtype)


def _track(
    buffers: dict[str, Any], mu: Tensor, k: Tensor, samples: Any, size: Any, momentum: float | None, with_share: bool
) -> None:
    threshold, seen, share, total = (buffers[name] for name in NAMES)
    counts = samples > 0
    if isinstance(samples, Tensor):
        samples = samples.clamp(min=1)
    elif not counts:
        return
    # A class without a positive or without a negative has no threshold in this batch; a NaN must not spoil the average.
    follow(threshold, seen, mu, (k > 0) & (k < samples) & mu.isfinite(), size, momentum)
    if with_share:
        total += as_numbers(counts * size, total.dtype, total.device)
        rate = _rate(size, total, momentum)
        share += (rate * (k / samples - share) * counts).to(share.dtype)


def follow(threshold: Tensor, seen: Tensor, mu: Tensor, moves: Tensor, size: Any, momentum: float | None) -> None:
    """Move the thresholds of some classes toward mu, those of a batch, and count its samples in `seen`."""
    seen += (moves * size).to(seen.dtype)
    change = _rate(size, seen, momentum) * (mu - threshold)
    threshold += torch.where(moves, change, 0).to(threshold.dtype)


def _rate(size: Any, count: Tensor, momentum: float | None) -> Tensor:
    """The weight of a batch: that of the plain average, until the least one takes over."""
    least = as_numbers(size / SPAN if momentum is None else momentum, count.dtype, count.device)
    if momentum is None:
        least = least.clamp(LEAST, 1)
    rate = (size / count).nan_to_num()
    return torch.maximum(rate, least.to(rate.dtype))
