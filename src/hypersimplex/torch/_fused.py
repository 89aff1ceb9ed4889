"""Loss and gradient in one kernel call.

At a batch of 128 the kernel takes less time than a handful of torch calls, so every one of those is avoided.
"""

from array import array
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex import _kernel
from hypersimplex.torch import _ops, _targets
from hypersimplex.torch._targets import Batch, Number, Outcome, Settings
from hypersimplex.torch.functional import _TENSORS, _has_memory, _no_transform


def _needs_gradient(value: Number | None) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def can_fuse(input: Tensor, target: Tensor, settings: Settings) -> bool:
    """One kernel call gives loss and gradient if only the logits need one, and no transform must see inside."""
    weight, _, reduction, k, prior, tau = settings
    return (
        type(input) in _TENSORS
        and input.is_cpu
        and target.is_cpu
        and reduction != "none"
        and not _ops.is_plain()
        and _no_transform()
        and not target.requires_grad
        and (type(tau) is float or not _needs_gradient(tau))
        and (k is None or not _needs_gradient(k))
        and (prior is None or not _needs_gradient(prior))
        and (weight is None or not _needs_gradient(weight))
    )


class Answer(NamedTuple):
    loss: Tensor
    samples: int
    grad: Tensor | None
    numbers: "array[float]"  # the thresholds, then k


def fused(input: Tensor, target: Tensor, settings: Settings) -> Outcome:
    if input.requires_grad and torch.is_grad_enabled():
        answers: list[Answer] = []
        loss: Tensor = _Loss.apply(input, (target, settings, answers))  # type: ignore[no-untyped-call]
        return Outcome(loss, None, None, answers[0].samples, answers[0].numbers)
    answer = solve(_targets.fit(input, target), settings, False)
    return Outcome(answer.loss, None, None, answer.samples, answer.numbers)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, rest: tuple[Tensor, Settings, list[Answer]]) -> Tensor:
        # All but the logits comes in one piece, which autograd does not look into.
        target, settings, answers = rest
        answer = solve(_targets.fit(input, target), settings, True)
        answers.append(answer)
        ctx.save_for_backward(input, target)
        ctx.grad, ctx.settings = answer.grad, settings
        return answer.loss

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, None]:
        input, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: by the composed loss
            from hypersimplex.torch.loss import composed

            loss = composed(_targets.read(input, target), ctx.settings, thresholds=False).loss
            return torch.autograd.grad(loss, input, v, create_graph=True)[0], None
        # The gradient is handed over, not copied; whoever asks a second time pays for a second computation.
        grad, ctx.grad = ctx.grad, None
        if grad is None:
            grad = solve(_targets.fit(input, target), ctx.settings, True).grad
        if not (_has_memory(v) and _no_transform()):  # several v at once
            return (grad * v).to(input.dtype).view(input.shape), None
        if v.item() != 1.0:
            grad.mul_(v)
        if grad.dtype is not input.dtype:
            grad = grad.to(input.dtype)
        return grad if grad.shape == input.shape else grad.view(input.shape), None


def _doubles(name: str, value: Number, classes: int) -> Tensor:
    return _targets.per_class(name, value, classes, torch.device("cpu")).detach().contiguous()


def _even(x: Tensor) -> Tensor:
    """x in float32 or float64, lying in memory as a gradient made by empty_like will."""
    wide = x if x.dtype is torch.float32 or x.dtype is torch.float64 else x.float()
    return wide if torch.empty_like(wide).stride() == wide.stride() and not wide.is_neg() else wide.clone().contiguous()


def solve(batch: Batch, settings: Settings, with_grad: bool) -> Answer:
    x, labels, dense, _ = batch
    weight, ignored, reduction, k, prior, tau = settings
    wide, dtype = x, x.dtype
    if not x.is_contiguous() or (dtype is not torch.float32 and dtype is not torch.float64) or x.is_neg():
        wide = _even(x)
    shape, stride = wide.shape, wide.stride()
    classes = shape[1]
    if labels is None:
        assert dense is not None
        _targets.check_dense(dense)
        if dense.dtype is not wide.dtype or dense.stride() != stride or dense.is_neg():
            dense = torch.empty_like(wide).copy_(dense)
    elif not labels.is_contiguous():
        labels = labels.contiguous()
    if prior is not None:
        k = _doubles("prior", prior, classes)
        _targets.check_prior(k)
    elif k is not None:
        k = _doubles("k", k, classes)
    if weight is not None:
        weight = _doubles("weight", weight, classes)
    taus, number = (None, tau) if isinstance(tau, float) else (_doubles("tau", tau, classes), 0.0)
    if len(shape) == 2:
        shape, stride = (shape[0], classes, 1), (*stride, 1)  # type: ignore[assignment]
    grad = torch.empty_like(wide) if with_grad else None
    numbers = array("d", bytes(16 * classes))
    room = numbers.buffer_info()[0]
    found = _kernel.loss_at(
        wide.dtype is torch.float64, shape, stride, wide.data_ptr(),
        0 if labels is None else labels.data_ptr(), ignored, 0 if dense is None else dense.data_ptr(),
        0 if k is None else k.data_ptr(), prior is not None, 0 if taus is None else taus.data_ptr(), number,
        0 if weight is None else weight.data_ptr(), 0, 1.0, reduction == "mean",
        0 if grad is None else grad.data_ptr(), room, room + 8 * classes, torch.get_num_threads(),
    )  # fmt: skip
    if len(found) == 3:
        _fail(found, classes, numbers, tau if taus is None else taus)
    total, samples = found  # type: ignore[misc]
    if reduction == "mean":
        total = total / samples if samples else float("nan")
    return Answer(torch.scalar_tensor(total, dtype=_targets.result_dtype(x)), samples, grad, numbers)


def _fail(failure: Any, classes: int, numbers: "array[float]", tau: Any) -> None:
    what, at, limit = failure
    if what == "label":
        raise _targets.bad_label(limit, classes)
    k = numbers[classes + at]
    if what == "k":
        raise _targets.bad_k(k, limit)
    _ops.fail(failure, k, tau, limit, 0)
