"""What may stand where: shapes of logits and targets, and the numbers per class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hypersimplex import _checks

Number = Tensor | float


@dataclass(frozen=True, slots=True)
class Batch:
    """Logits and targets as (samples, classes, positions), and how they were given."""

    logits: Tensor
    labels: Tensor | None  # (samples, positions), int64
    dense: Tensor | None  # like logits
    shape: tuple[int, ...]  # of one loss for each sample and position

    @property
    def classes(self) -> int:
        return self.logits.shape[1]


def read(input: Tensor, target: Tensor) -> Batch:
    """Sort out the shapes; raise an error that names what does not fit."""
    if not input.is_floating_point():
        raise _checks.not_floating("input", input.dtype)
    if input.dim() == 0:
        raise ValueError("input must have at least one dimension, got a scalar")
    if target.shape == input.shape:
        return _dense(input, target)
    single = input.dim() == 1 and target.dim() == 0
    if single:  # one sample without a batch dim, as nn.CrossEntropyLoss takes it
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    if input.dim() < 2 or target.shape != (input.shape[0], *input.shape[2:]):
        raise ValueError(
            f"target must have the shape of input {tuple(input.shape)}, or that shape without its class dim, "
            f"got {tuple(target.shape)}"
        )
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(f"target must be integer where it holds class indices, got {target.dtype}")
    labels = target if target.dtype == torch.int64 else target.long()
    samples, classes = input.shape[:2]
    shape = () if single else tuple(target.shape)
    if input.dim() == 2:
        return Batch(input.unsqueeze(2), labels.unsqueeze(1), None, shape)
    return Batch(input.reshape(samples, classes, -1), labels.reshape(samples, -1), None, shape)


def _dense(input: Tensor, target: Tensor) -> Batch:
    if target.is_complex():
        raise TypeError(f"target must be real, got {target.dtype}")
    dense = target if target.dtype == input.dtype else target.to(input.dtype)
    if input.dim() == 1:
        return Batch(input[:, None, None], None, dense[:, None, None], tuple(input.shape))
    samples, classes = input.shape[:2]
    shape = (samples, *input.shape[2:])
    if input.dim() == 2:
        return Batch(input.unsqueeze(2), None, dense.unsqueeze(2), shape)
    return Batch(input.reshape(samples, classes, -1), None, dense.reshape(samples, classes, -1), shape)


def check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def per_class(name: str, value: object, classes: int, device: torch.device) -> Tensor:
    """A number or one for each class, as float64."""
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value, dtype=torch.float64, device=device)
        except (TypeError, ValueError, RuntimeError):
            kind = type(value).__name__
            raise TypeError(f"{name} must be a number or one number for each class, got {kind}") from None
    if value.dim() > 1 or (value.dim() == 1 and value.shape[0] not in (1, classes)):
        raise ValueError(f"{name} must be a number or have shape ({classes},), got shape {tuple(value.shape)}")
    return value.to(torch.float32 if device.type == "mps" else torch.float64).expand(classes)


def check_values(batch: Batch, k: Tensor, tau: Tensor, prior: Tensor | None) -> None:
    """The kernel's checks, for values that can be read without waiting for a device."""
    if prior is not None and not bool(((prior >= 0) & (prior <= 1)).all()):
        raise bad_prior(float(prior[~((prior >= 0) & (prior <= 1))][0]))
    if not bool(((tau > 0) & tau.isfinite()).all()):
        raise _checks.bad_tau(float(tau[~((tau > 0) & tau.isfinite())][0]))


def bad_prior(value: float) -> ValueError:
    return ValueError(f"prior must be between 0 and 1, got {value}")


def bad_label(label: int, classes: int) -> ValueError:
    return ValueError(f"target must be between 0 and {classes - 1} or ignore_index, got {label}")
