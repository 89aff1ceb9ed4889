"""CUDA tensors by Triton kernels. Nothing here waits for the device, so bad values give NaN instead of an error."""

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch import _batch, _triton
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends.plain import gradient, prepare, sums

__all__ = ["binary", "gradient", "is_available", "loss", "prepare", "project", "pullback", "sums"]

is_available = _triton.is_available
binary = plain.binary


def project(
    x: Tensor, k: Number, tau: Number, dim: int, *, want_y: bool = True, want_mu: bool = True
) -> tuple[Tensor, Tensor | None]:
    _checks.check_numbers(k, tau, x.shape[dim], f"dim {dim}")
    k, tau = (torch.as_tensor(v, dtype=torch.float64, device=x.device) for v in (k, tau))
    y, mu = _triton.project(x, k, tau, dim)
    return y, _triton.settle(x, mu, tau, dim) if want_mu else None


def pullback(
    y: Tensor, v: Tensor, tau: Number, dim: int, needs: tuple[bool, ...] = (True, True, True)
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    found = _triton.backward(y.to(v.dtype), v, torch.as_tensor(tau, device=y.device), dim)
    return found[0] if needs[0] else None, found[1] if needs[1] else None, found[2] if needs[2] else None


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    x, labels, dense, _ = batch
    if x.dim() == 3:  # positions are samples
        samples, classes, positions = x.shape
        rows = [None if t is None else t.transpose(1, 2).reshape(-1, classes) for t in (x, dense)]
        assert rows[0] is not None
        outcome = loss(
            Batch(rows[0], None if labels is None else labels.reshape(-1), rows[1], ()), settings, with_gradient
        )
        if outcome.gradient is None:
            return outcome
        return outcome._replace(gradient=outcome.gradient.reshape(samples, positions, classes).transpose(1, 2))
    columns = _batch.columns(batch, settings.ignore_index)
    k = _batch.wanted(settings, columns.counts, columns.samples)
    given = {"tau": settings.tau, "weight": 1.0 if settings.weight is None else settings.weight}
    tau, weight = (_batch.per_class(name, value, batch.classes, x.device) for name, value in given.items())
    samples_kept = torch.as_tensor(columns.samples, dtype=torch.float64, device=x.device)
    scale = 1 / samples_kept.clamp(min=1) if settings.reduction == "mean" else torch.ones_like(samples_kept)
    target = labels if labels is not None else dense
    assert target is not None
    found = _triton.loss(x, target, k, tau, weight, scale, settings.ignore_index)
    value = found.losses.sum() * scale
    if settings.reduction == "mean":
        value = torch.where(samples_kept > 0, value, torch.nan)
    mu = _triton.settle(columns.logits, found.mu, tau, 1)
    return Outcome(value.to(_batch.result_dtype(x)), torch.stack((mu, k.to(mu.dtype))), columns.samples, found.gradient)
