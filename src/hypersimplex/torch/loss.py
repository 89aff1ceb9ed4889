"""The HyperSimplex loss: value and gradient in one kernel call, or composed of the operator where that must be seen."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex import _checks, _kernel
from hypersimplex.torch import _ops, _targets
from hypersimplex.torch._targets import Batch, Number
from hypersimplex.torch.functional import _no_transform, soft_binary_argmax, threshold


class Outcome(NamedTuple):
    loss: Tensor
    threshold: Tensor  # mu, one for each class
    k: Tensor  # how many of the batch were projected to be positive, one for each class
    samples: Tensor | int  # that were not ignored


class Settings(NamedTuple):
    weight: Tensor | None
    ignore_index: int
    reduction: str
    k: Number | None
    prior: Number | None
    tau: Number


def hypersimplex_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    *,
    k: Number | None = None,
    prior: Number | None = None,
    tau: Number = 1.0,
    group: Any = None,
) -> Tensor:
    """Project every class's logits over the batch so that they sum to k, and compare them with the labels.

    With p the projection of column c with k_c (see `soft_binary_argmax`), the loss of a sample is one half of the sum
    over classes of weight_c (p - onehot)^2; "sum" adds the samples up, "mean" divides that by their number.

    Args:
        input: logits: (N, C), (N, C, d1, ...), or (N,) for a binary problem.
        target: class indices (N,) or (N, d1, ...), or dense targets of input's shape (multi-label, soft labels).
        weight: one number for each class, a factor of its column.
        ignore_index: class index of samples to leave out, also of k and of the mean.
        reduction: "none", "mean" or "sum".
        k: how many of the batch are positive, a number or one for each class. Default: as many as the targets say.
        prior: the same as a share of the batch.
        tau: temperature of the projection: a number, one for each class, or a tensor to be learned.
        group: a process group (True: the default one) whose ranks' batches form one batch.

    >>> logits = torch.tensor([[2.1, 0.3], [1.6, 1.1], [1.0, 1.9]])
    >>> hypersimplex_loss(logits, torch.tensor([0, 0, 1]))
    tensor(0.0167)
    """
    settings = Settings(weight, ignore_index, reduction, k, prior, tau)
    return compute(input, target, settings, group).loss


def compute(input: Tensor, target: Tensor, settings: Settings, group: Any = None) -> Outcome:
    _targets.check_reduction(settings.reduction)
    if settings.k is not None and settings.prior is not None:
        raise ValueError(f"k and prior must not both be given, got k={settings.k} and prior={settings.prior}")
    if group is not None:
        from hypersimplex.torch import distributed

        return distributed.compute(input, target, settings, group)
    batch = _targets.read(input, target)
    return _fused(batch, input, target, settings) if _can_fuse(batch, settings) else composed(batch, settings)


def _can_fuse(batch: Batch, settings: Settings) -> bool:
    """One kernel call gives loss and gradient if only the logits need one, and no transform must see inside."""
    return (
        settings.reduction != "none"
        and type(batch.logits) is Tensor
        and batch.logits.device.type == "cpu"
        and not _ops.is_plain()
        and _no_transform()
        and not any(isinstance(t, Tensor) and t.requires_grad for t in (settings.tau, settings.k, settings.prior))
        and not (settings.weight is not None and settings.weight.requires_grad)
        and not (batch.dense is not None and batch.dense.requires_grad)
    )


def _result_dtype(logits: Tensor) -> torch.dtype:
    """Autocast computes losses in float32 and leaves them so."""
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half and torch.is_autocast_enabled(logits.device.type) else logits.dtype


def _contiguous_doubles(name: str, value: Number | None, classes: int) -> Tensor | None:
    if value is None:
        return None
    return _targets.per_class(name, value, classes, torch.device("cpu")).detach().contiguous()


def _fused(batch: Batch, input: Tensor, target: Tensor, settings: Settings) -> Outcome:
    numbers = torch.empty((2, batch.classes), dtype=torch.float64)
    if not batch.logits.requires_grad or not torch.is_grad_enabled():
        loss, samples, _ = run_kernel(batch, settings, numbers, False)
        return Outcome(loss, numbers[0], numbers[1], samples)
    loss, samples = _Loss.apply(input, target, batch, settings, numbers)
    return Outcome(loss, numbers[0], numbers[1], samples)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, target: Tensor, batch: Batch, settings: Settings, numbers: Tensor
    ) -> tuple[Tensor, int]:
        loss, samples, grad = run_kernel(batch, settings, numbers, True)
        ctx.save_for_backward(input, target)
        ctx.grad, ctx.settings = grad, settings
        return loss, samples

    @staticmethod
    def backward(ctx: Any, v: Tensor, _: Any) -> tuple[Tensor | None, None, None, None, None]:  # type: ignore[override]
        input, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: by the composed loss
            loss = composed(_targets.read(input, target), ctx.settings).loss
            return torch.autograd.grad(loss, input, v, create_graph=True)[0], None, None, None, None
        # The gradient is handed over, not copied; whoever asks a second time pays for a second computation.
        grad, ctx.grad = ctx.grad, None
        if grad is None:
            batch = _targets.read(input.detach(), target)
            numbers = torch.empty((2, batch.classes), dtype=torch.float64)
            grad = run_kernel(batch, ctx.settings, numbers, True)[2]
        if float(v) != 1.0:
            grad.mul_(v)
        grad = grad if grad.dtype is input.dtype else grad.to(input.dtype)
        return grad.view(input.shape), None, None, None, None


def run_kernel(batch: Batch, settings: Settings, numbers: Tensor, with_grad: bool) -> tuple[Tensor, int, Tensor | None]:
    """Fill numbers with thresholds and k; return the loss, the samples that count, and the gradient."""
    x, classes = batch.logits, batch.classes
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if wide.is_neg() or (with_grad and torch.empty_like(wide).stride() != wide.stride()):
        wide = wide.contiguous()
    dense = batch.dense
    if dense is not None and (dense.dtype is not wide.dtype or dense.stride() != wide.stride() or dense.is_neg()):
        dense = torch.empty_like(wide).copy_(dense)
    labels = None if batch.labels is None else batch.labels.contiguous()
    grad = torch.empty_like(wide) if with_grad else None
    share = settings.prior is not None
    k = _contiguous_doubles("prior" if share else "k", settings.prior if share else settings.k, classes)
    weight = _contiguous_doubles("weight", settings.weight, classes)
    tau = settings.tau
    if not isinstance(tau, float):
        tau = _targets.per_class("tau", tau, classes, x.device).detach().contiguous()
    if share and k is not None and not bool(((k >= 0) & (k <= 1)).all()):
        raise _targets.bad_prior(float(k[~((k >= 0) & (k <= 1))][0]))
    answer = _kernel.loss_at(
        wide.dtype is torch.float64, wide.shape, wide.stride(), wide.data_ptr(),
        0 if labels is None else labels.data_ptr(), settings.ignore_index, 0 if dense is None else dense.data_ptr(),
        0 if k is None else k.data_ptr(), share, *_ops.address(tau), 0 if weight is None else weight.data_ptr(), 0,
        1.0, settings.reduction == "mean", 0 if grad is None else grad.data_ptr(),
        numbers.data_ptr(), numbers.data_ptr() + 8 * classes, torch.get_num_threads(),
    )  # fmt: skip
    if len(answer) == 3:
        _fail(answer, batch, numbers, tau)
    total, samples = answer  # type: ignore[misc]
    if settings.reduction == "mean":
        total = total / samples if samples else float("nan")
    return torch.scalar_tensor(total, dtype=_result_dtype(batch.logits)), samples, grad


def _fail(failure: Any, batch: Batch, numbers: Tensor, tau: Any) -> None:
    what, at, limit = failure
    if what == "label":
        raise _targets.bad_label(limit, batch.classes)
    if what == "k" and batch.dense is not None and torch.isnan(batch.dense).any():
        raise ValueError("target must not contain NaN, got NaN")
    k = float(numbers[1, at])
    if what == "k":
        raise ValueError(f"k must be between 0 and {limit} (the number of samples), got {_checks.plain_number(k)}")
    _ops.fail(failure, k, tau if isinstance(tau, float) else float(tau[at]), limit, 0)


def composed(batch: Batch, settings: Settings) -> Outcome:
    """The same loss out of the operator and torch operations: any device, any transform, gradients to all arguments."""
    x, classes = batch.logits, batch.classes
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    columns = x.to(wide).transpose(0, 1).reshape(classes, -1)  # one row for each class: samples and positions
    tau = _targets.per_class("tau", settings.tau, classes, x.device)
    weight = None
    if settings.weight is not None:
        weight = _targets.per_class("weight", settings.weight, classes, x.device).to(wide)
    if batch.labels is not None:
        labels = batch.labels.reshape(-1)
        kept = labels != settings.ignore_index
        safe = torch.where(kept, labels, 0)
        if x.device.type == "cpu" and _no_transform():
            wrong = kept & ((labels < 0) | (labels >= classes))
            if bool(wrong.any()):
                raise _targets.bad_label(int(labels[wrong][0]), classes)
        samples: Tensor | int = kept.sum()
        columns = torch.where(kept, columns, -torch.inf)  # an ignored sample is a masked entry
        counts = torch.zeros(classes, dtype=wide, device=x.device).index_add(0, safe, kept.to(wide))
    else:
        assert batch.dense is not None
        dense = batch.dense.to(wide).transpose(0, 1).reshape(classes, -1)
        kept, samples = None, columns.shape[1]
        counts = dense.sum(1)
    k = _wanted(settings, counts, samples, classes, x.device)
    p = soft_binary_argmax(columns, k, tau, dim=1)
    if kept is not None:
        error = p.scatter_add(0, safe.unsqueeze(0), -kept.to(wide).unsqueeze(0))
    else:
        error = p - dense
    each = error.square() if weight is None else weight.unsqueeze(1) * error.square()
    losses = each.sum(0) / 2
    if settings.reduction == "none":
        result = losses.reshape(batch.shape)
    else:
        result = losses.sum() if settings.reduction == "sum" else losses.sum() / samples
    mu = threshold(columns.detach(), k.detach(), tau.detach(), dim=1)
    return Outcome(result.to(_result_dtype(x)), mu, k.detach(), samples)


def _wanted(settings: Settings, counts: Tensor, samples: Tensor | int, classes: int, device: torch.device) -> Tensor:
    if settings.k is not None:
        return _targets.per_class("k", settings.k, classes, device)
    if settings.prior is not None:
        return _targets.per_class("prior", settings.prior, classes, device) * samples
    return counts.to(torch.float32 if device.type == "mps" else torch.float64)
