"""The loss of this process's batch: value and gradient in one call of a backend, or composed of torch operations."""

from typing import Any

import torch
from torch import Tensor

from hypersimplex.torch import _batch, _columns
from hypersimplex.torch._batch import Outcome, Settings
from hypersimplex.torch._boundary import has_batches, is_eager
from hypersimplex.torch._projection import TENSORS, project
from hypersimplex.torch.backends import pick


def compute(input: Tensor, target: Tensor, settings: Settings) -> Outcome:
    _batch.check(input, target, settings)
    if settings.label_smoothing:
        target, settings = _columns.smoothed(input, target, settings)
    if not _in_one_call(input, target, settings):
        return _columns.compose(_batch.fit(input, target), settings, project).outcome
    if not (input.requires_grad and torch.is_grad_enabled()):
        return pick(input).loss(_batch.fit(input, target), settings, False)
    outcomes: list[Outcome] = []
    loss = _apply(input, (target, settings, outcomes))
    return Outcome(loss, outcomes[0].numbers, outcomes[0].samples)


def _in_one_call(input: Tensor, target: Tensor, settings: Settings) -> bool:
    """If only the logits need a gradient, and no transform must see inside."""
    weight, _, reduction, k, prior, tau, smoothing = settings
    return (
        reduction != "none"
        and not smoothing
        and type(input) in TENSORS
        and not target.requires_grad
        and (type(tau) is float or not _needs_gradient(tau))
        and (k is None or not _needs_gradient(k))
        and (prior is None or not _needs_gradient(prior))
        and (weight is None or not _needs_gradient(weight))
        and is_eager()
    )


def _needs_gradient(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, rest: tuple[Tensor, Settings, list[Outcome]]) -> Tensor:
        # All but the logits comes in one piece, which autograd does not look into.
        target, settings, outcomes = rest
        ctx.backend = pick(input)
        outcome: Outcome = ctx.backend.loss(_batch.fit(input, target), settings, True)
        outcomes.append(outcome)
        ctx.grad, ctx.settings = outcome.gradient, settings
        if settings.weight is None and settings.k is None and settings.prior is None and type(settings.tau) is float:
            ctx.save_for_backward(input, target)
        else:  # saved as tensors, so that autograd notices if they are changed in between
            ctx.save_for_backward(input, target, *(value for value in settings if isinstance(value, Tensor)))
            ctx.settings = [None if isinstance(value, Tensor) else (value,) for value in settings]
        return outcome.loss

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, None]:
        input, target, *tensors = ctx.saved_tensors
        settings = ctx.settings
        if type(settings) is not Settings:
            saved = iter(tensors)
            settings = Settings(*(next(saved) if value is None else value[0] for value in settings))
        if torch.is_grad_enabled():  # to be differentiated again
            loss = _columns.compose(_batch.fit(input, target), settings, project).outcome.loss
            return torch.autograd.grad(loss, input, v, create_graph=True)[0], None
        # The gradient is handed over, not copied; whoever asks a second time pays for a second computation.
        grad, ctx.grad = ctx.grad, None
        if grad is None:
            grad = ctx.backend.loss(_batch.fit(input, target), settings, True).gradient
        if not v.is_cpu or type(v) is not Tensor or has_batches(v) or not is_eager():
            grad = grad * v  # without waiting for the device, and for several v at once
        elif v.item() != 1.0:
            grad.mul_(v)
        if grad.dtype is not input.dtype:
            grad = grad.to(input.dtype)
        return grad if grad.shape == input.shape else grad.reshape(input.shape), None


# Without the checks for transforms that Function.apply makes: where this is called, there are none.
_apply: Any = super(torch.autograd.Function, _Loss).apply
