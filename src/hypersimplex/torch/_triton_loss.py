"""Loss and gradient on a CUDA device in one go: no one-hot array, nothing of the logits' size but the gradient."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _ops, _targets, _triton
from hypersimplex.torch._targets import Number, Outcome, Settings
from hypersimplex.torch.functional import _no_transform


def can_fuse(input: Tensor, target: Tensor, settings: Settings) -> bool:
    """If only the logits need a gradient, no transform must see inside, and each class is one column."""
    return (
        input.is_cuda
        and input.dim() <= 2
        and settings.reduction != "none"
        and _triton.is_available()
        and not _ops.is_plain()
        and _no_transform()
        and not any(
            isinstance(t, Tensor) and t.requires_grad
            for t in (target, settings.weight, settings.k, settings.prior, settings.tau)
        )
    )


def fused(input: Tensor, target: Tensor, settings: Settings) -> Outcome:
    logits, labels, dense, _ = _targets.fit(input, target)
    numbers = _numbers(logits, labels, dense, settings)
    given = labels if labels is not None else dense
    assert given is not None
    answer: list[_triton.Loss] = []
    loss: Tensor = _Loss.apply(logits, given, settings, numbers, answer)  # type: ignore[no-untyped-call]
    k, tau, _, samples = numbers
    masked = logits.detach()
    if labels is not None:
        masked = torch.where((labels != settings.ignore_index).unsqueeze(1), masked, -torch.inf)
    mu = _triton.settle(masked, answer[0].mu, tau, 0)
    return Outcome(loss, mu if logits.dtype is torch.float64 else mu.float(), k, samples)


def _numbers(x: Tensor, labels: Tensor | None, dense: Tensor | None, settings: Settings) -> tuple[Tensor, ...]:
    """k, tau and weight of each class, and the number of samples, all on the device."""
    classes, device = x.shape[1], x.device

    def per_class(name: str, value: Number) -> Tensor:
        return _targets.per_class(name, value, classes, device)

    if labels is not None:
        kept = labels != settings.ignore_index
        counts = torch.zeros(classes, dtype=torch.float64, device=device)
        counts.index_add_(0, torch.where(kept, labels, 0), kept.to(torch.float64))
        samples = kept.sum().to(torch.float64)
    else:
        assert dense is not None
        counts = dense.sum(0, dtype=torch.float64)
        samples = torch.full((), float(x.shape[0]), dtype=torch.float64, device=device)
    if settings.k is not None:
        k = per_class("k", settings.k)
    elif settings.prior is not None:
        k = per_class("prior", settings.prior) * samples
    else:
        k = counts
    weight = per_class("weight", 1.0 if settings.weight is None else settings.weight)
    return k, per_class("tau", settings.tau), weight, samples


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, target: Tensor, settings: Settings, numbers: tuple[Tensor, ...], answer: list[_triton.Loss]
    ) -> Tensor:
        k, tau, weight, samples = numbers
        # The mean over no sample is NaN, and its gradient zero, as in nn.CrossEntropyLoss.
        scale = 1 / samples.clamp(min=1) if settings.reduction == "mean" else torch.ones_like(samples)
        result = _triton.loss(x, target, k, tau, weight, scale, settings.ignore_index)
        answer.append(result)
        ctx.settings, ctx.gradient = settings, result.gradient
        ctx.save_for_backward(x, target)
        total = result.losses.sum() * scale
        if settings.reduction == "mean":
            total = torch.where(samples > 0, total, torch.nan)
        return total.to(_targets.result_dtype(x))

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: by the composed loss
            from hypersimplex.torch.loss import composed

            loss = composed(_targets.read(x, target), ctx.settings, thresholds=False).loss
            return *torch.autograd.grad(loss, x, v, create_graph=True), None, None, None, None
        return (ctx.gradient * v).to(x.dtype), None, None, None, None
