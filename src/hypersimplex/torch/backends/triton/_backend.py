"""The contract of a backend on top of the kernels: layouts, dtypes, the numbers of each class."""

from typing import NamedTuple

import torch
from torch import Tensor

from hypersimplex.torch import _batch, _columns
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch._boundary import slices
from hypersimplex.torch.backends.triton import _launch

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def _even(x: Tensor) -> Tensor:
    """x in a dtype that the kernels load, contiguous; copied only if it must be."""
    return (x if x.dtype in FLOATS else x.float()).detach().contiguous().resolve_neg()


def _numbers(value: Number, x: Tensor, shape: torch.Size) -> Tensor:
    """One float64 for each slice, one after the other in memory."""
    each = torch.as_tensor(value, dtype=torch.float64, device=x.device)
    return each.detach().expand(shape).reshape(-1).contiguous()


def project(
    x: Tensor, k: Number, tau: Number, dim: int, *, want_y: bool = True, want_mu: bool = True
) -> tuple[Tensor | None, Tensor]:
    shape = slices(x, dim)
    if x.numel() == 0:
        return torch.empty_like(x), torch.zeros(shape, dtype=torch.float64, device=x.device)
    y, mu = _launch.project(_even(x), _numbers(k, x, shape), _numbers(tau, x, shape), dim, want_y)
    return y.to(x.dtype) if want_y else None, mu.reshape(shape)


def pullback(
    y: Tensor, v: Tensor, tau: Number, dim: int, needs: tuple[bool, bool, bool] = (True, True, True)
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    shape = slices(y, dim)
    if y.numel() == 0:
        to_k = torch.zeros(shape, dtype=torch.float64, device=y.device)
        return torch.empty_like(v), to_k, torch.zeros_like(to_k)
    to_x, to_k, to_tau = _launch.pullback(_even(y), _even(v), _numbers(tau, y, shape), dim)
    found = to_x.to(v.dtype), to_k.reshape(shape), to_tau.reshape(shape)
    return tuple(grad if needed else None for grad, needed in zip(found, needs, strict=True))  # type: ignore[return-value]


class _Targets(NamedTuple):
    values: Tensor  # class indices (samples,) or dense (samples, classes)
    counts: Tensor  # of every class
    samples: Tensor  # that are not ignored


def _read_targets(labels: Tensor | None, dense: Tensor | None, ignored: int, classes: int) -> _Targets:
    """A label that is no class makes every count NaN, and with that the loss."""
    if labels is None:
        assert dense is not None
        samples = torch.full((), float(dense.shape[0]), dtype=torch.float64, device=dense.device)
        return _Targets(dense, dense.sum(0, dtype=torch.float64), samples)
    kept = labels != ignored
    bad = kept & ((labels < 0) | (labels >= classes))
    counts = torch.zeros(classes, dtype=torch.float64, device=labels.device)
    counts.index_add_(0, torch.where(kept & ~bad, labels, 0), (kept & ~bad).to(torch.float64))
    return _Targets(labels, torch.where(bad.any(), torch.nan, counts), kept.sum())


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    x, labels, dense, _ = batch
    classes, device = batch.classes, x.device
    if x.dim() == 3:  # positions are samples
        x2, dense2 = (None if t is None else t.transpose(1, 2).reshape(-1, classes) for t in (x, dense))
        assert x2 is not None
        flat = Batch(x2, None if labels is None else labels.reshape(-1), dense2, ())
        outcome = loss(flat, settings, with_gradient)
        if outcome.gradient is None:
            return outcome
        gradient = outcome.gradient.reshape(x.shape[0], x.shape[2], classes).transpose(1, 2)
        return outcome._replace(gradient=gradient)
    targets = _read_targets(labels, dense, settings.ignore_index, classes)
    k = _columns.wanted(settings, targets.counts, targets.samples)
    weight = 1.0 if settings.weight is None else settings.weight
    k, tau, weight = (
        _numbers(_batch.per_class(name, value, classes, device), x, torch.Size([classes]))
        for name, value in (("k", k), ("tau", settings.tau), ("weight", weight))
    )
    labelled = None if settings.weight is None or labels is None else targets.counts
    by = torch.as_tensor(_columns.divisor(weight, labelled, targets.samples)).to(torch.float64)
    scale = 1 / torch.where(by == 0, 1, by) if settings.reduction == "mean" else torch.ones_like(by)
    if x.numel():
        columns = _launch.Columns(
            _even(x), targets.values.contiguous(), settings.ignore_index, k, tau, weight, scale.reshape(1)
        )
        losses, gradient, mu = _launch.loss(columns, with_gradient)
    else:
        gradient, losses, mu = torch.zeros_like(x), torch.zeros_like(k), torch.zeros_like(k)
    value = losses.sum() * scale
    if settings.reduction == "mean":
        value = torch.where(by == 0, torch.nan, value)
    value = value.to(_batch.result_dtype(x))
    return Outcome(value, torch.stack((mu, k)), targets.samples, gradient if with_gradient else None)
