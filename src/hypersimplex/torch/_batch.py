"""Which shapes logits and targets may have, the numbers per class, and what a loss returns."""

import math
import operator
from array import array
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch._boundary import as_numbers, check_layout, has_memory, is_eager, widest

Number = Tensor | float
LONG = 2**63
IGNORED = -100  # ignore_index where none is given
REDUCTIONS = ("none", "mean", "sum")


class Outcome(NamedTuple):
    loss: Tensor
    numbers: "Tensor | array[float]"  # mu_and_k, or what the kernel wrote: an array costs less than a tensor
    samples: Tensor | int  # that were not ignored
    gradient: Tensor | None = None  # of the loss to the logits of the batch, if asked for
    multilabel: Tensor | bool | None = None  # with a group: whether some rank's targets are

    @property
    def mu_and_k(self) -> Tensor:
        """Two rows: the threshold of each class, and how many samples of the batch were projected to be positive."""
        if isinstance(self.numbers, Tensor):
            return self.numbers
        rows = torch.tensor(self.numbers, dtype=torch.float64, device=self.loss.device)
        return rows.reshape(2, -1)

    @property
    def classes(self) -> int:
        return self.numbers.shape[1] if isinstance(self.numbers, Tensor) else len(self.numbers) // 2


class Settings(NamedTuple):
    weight: Tensor | None
    ignore_index: int
    reduction: str
    k: Number | None
    prior: Number | None
    tau: Number
    label_smoothing: float = 0.0


class Batch(NamedTuple):
    """Logits and targets as (samples, classes, positions), without the last dim where there is none."""

    logits: Tensor
    target: Tensor  # labels (samples, positions) in int64, or dense targets like logits
    dense: bool
    shape: tuple[int, ...]  # of one loss for each sample and position

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def rows(self) -> "Batch":
        """The same with positions as samples: logits (rows, classes), labels (rows,)."""
        if self.logits.dim() == 2:
            return self
        logits, target = self.logits.transpose(1, 2).reshape(-1, self.classes), self.target
        target = target.transpose(1, 2).reshape(-1, self.classes) if self.dense else target.reshape(-1)
        return Batch(logits, target, self.dense, self.shape)


def fit(input: Tensor, target: Tensor) -> Batch:
    """Sort out the shapes, without views that the kernel can do without; raise an error that names what does not fit.

    Each view costs as much as solving a small column.
    """
    check_layout("input", input)
    check_layout("target", target)
    if target.dtype is torch.int64 and target.dim() == 1 and input.dim() == 2 and input.is_floating_point():
        given = target.shape  # what nearly every call looks like
        if given[0] == input.shape[0] and input.is_cpu and target.is_cpu:
            return Batch(input, target, False, given)
    if not input.is_floating_point():
        raise _checks.not_floating("input", input.dtype)
    if target.device != input.device:
        raise ValueError(f"target must be on the device of input, {input.device}, got {target.device}")
    shape = input.shape
    if target.shape == shape and shape:
        return _fit_dense(input, target)
    if not shape:
        raise ValueError("input must have at least one dimension, got a scalar")
    single = len(shape) == 1 and target.dim() == 0
    if single:  # one sample without a batch dim, as nn.CrossEntropyLoss takes it
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    given = target.shape
    if input.dim() < 2 or given != input.shape[:1] + input.shape[2:]:
        raise ValueError(
            f"target must have the shape of input {tuple(input.shape)}, or that shape without its class dim, "
            f"got {tuple(given)}"
        )
    labels = target
    if labels.dtype is not torch.int64:
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise TypeError(f"target must be integer where it holds class indices, got {labels.dtype}")
        labels = _converted(labels, torch.int64)
    if input.dim() > 2:
        input, labels = input.flatten(2), labels.flatten(1)
    return Batch(input, labels, False, () if single else given)


def _fit_dense(input: Tensor, target: Tensor) -> Batch:
    if target.is_complex():
        raise TypeError(f"target must be real, got {target.dtype}")
    half = input.dtype in (torch.float16, torch.bfloat16)
    dense = _converted(target, torch.float32 if half else input.dtype)
    if input.dim() == 1:
        return Batch(input.unsqueeze(1), dense.unsqueeze(1), True, input.shape)
    if input.dim() == 2:
        return Batch(input, dense, True, input.shape[:1])
    return Batch(input.flatten(2), dense.flatten(2), True, input.shape[:1] + input.shape[2:])


def _converted(target: Tensor, dtype: torch.dtype) -> Tensor:
    if target.dtype is not dtype and is_eager():
        has_memory("target", target)
    return target.to(dtype)


def result_dtype(logits: Tensor) -> torch.dtype:
    """Autocast computes losses in float32 and leaves them so."""
    dtype = logits.dtype
    half = dtype is torch.float16 or dtype is torch.bfloat16
    return torch.float32 if half and torch.is_autocast_enabled(logits.device.type) else dtype


def check(input: object, target: object, settings: Settings) -> None:
    """Checks that need no shapes."""
    if settings.reduction not in REDUCTIONS:
        check_reduction(settings.reduction)
    index = settings.ignore_index
    if type(input) is not Tensor or type(target) is not Tensor or type(index) is not int or not -LONG <= index < LONG:
        for name, value in (("input", input), ("target", target)):
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
        whole("ignore_index", index)
    if settings.k is not None and settings.prior is not None:
        raise _checks.both_given(settings.k, settings.prior)
    if settings.label_smoothing != 0.0:
        check_smoothing(settings.label_smoothing)
    if index != IGNORED and fit(input, target).dense:  # type: ignore[arg-type]
        raise ValueError(
            f"ignore_index must be left at {IGNORED} where targets are dense, since no entry is an index, got {index}"
        )


def plain(settings: Settings) -> Settings:
    """With plain numbers where they may have come as others."""
    if type(settings.ignore_index) is not int:
        settings = settings._replace(ignore_index=whole("ignore_index", settings.ignore_index))
    if type(settings.label_smoothing) is not float:
        settings = settings._replace(label_smoothing=smoothing(settings.label_smoothing))
    return settings


def check_smoothing(value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, got {value}")


def smoothing(value: Any) -> float:
    return number("label_smoothing", value)


def number(name: str, value: Any) -> float:
    """One number as a float; it may come as one of NumPy's or as a 0-d tensor."""
    of_torch = isinstance(value, Tensor) and not value.dim() and value.dtype is not torch.bool
    if isinstance(value, bool) or not (of_torch or isinstance(value, Real)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return _checks.check_number(name, value.detach() if of_torch else value)


def whole(name: str, value: Any) -> int:
    """A whole number of 64 bits, which may come as one of NumPy's or as a 0-d tensor."""
    boolean = isinstance(value, bool | np.bool_) or (isinstance(value, Tensor) and value.dtype is torch.bool)
    try:
        number = operator.index(value) if not boolean else None
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if not -LONG <= number < LONG:
        raise ValueError(f"{name} must be a whole number of 64 bits, got {value}")
    return number


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def per_class(name: str, value: object, classes: int, device: torch.device) -> Tensor:
    """A number or one for each class, as float64."""
    if not isinstance(value, Tensor):
        try:
            value = as_numbers(value, torch.float64, device)
        except OverflowError:
            raise _checks.too_large(name) from None
        except (TypeError, ValueError, RuntimeError):
            kind = type(value).__name__
            raise TypeError(f"{name} must be a number or one number for each class, got {kind}") from None
    check_per_class(name, value, classes)
    return value.to(device, widest(device)).expand(classes)


def check_per_class(name: str, value: Tensor, classes: int) -> None:
    check_layout(name, value)
    if value.dim() > 1 or (value.dim() == 1 and value.shape[0] != 1 and value.shape[0] != classes):
        raise ValueError(f"{name} must be a number or have shape ({classes},), got shape {tuple(value.shape)}")


def number_as_weight(value: Any) -> TypeError:
    whole = not isinstance(value, bool) and 1 <= value <= 1e6 and value == math.floor(value)
    hint = f", or num_classes={int(value)} for {int(value)} classes" if whole else ""
    return TypeError(f"weight must be a tensor with one number for each class{hint}, got {value!r}")


def check_plain_numbers(k: object, prior: object, tau: object) -> None:
    """Checks of plain numbers that need no batch."""
    for name, value in (("k", k), ("prior", prior), ("tau", tau)):
        if isinstance(value, int | str):
            _checks.check_number(name, value)
    if isinstance(tau, float | int) and not 0 < tau < math.inf:
        raise _checks.bad_tau(tau)
    if isinstance(k, float | int) and not k >= 0:
        raise ValueError(f"k must be at least 0, got {_checks.plain_number(k)}")
    if isinstance(prior, float | int) and not 0 <= prior <= 1:
        raise _checks.bad_prior(prior)


# The kernel's checks, for where it is not called and the values can be read without waiting for a device.


def check_labels(labels: Tensor, classes: int) -> None:
    wrong = (labels < 0) | (labels >= classes)
    if bool(wrong.any()):
        raise _checks.bad_label(int(labels[wrong][0]), classes)


def check_dense(dense: Tensor) -> None:
    if dense.numel() == 0:
        return
    low, high = (float(end) for end in torch.aminmax(dense.detach()))
    if not (low >= 0 and high <= 1):
        hint = "; ignore_index is for class indices" if low < -1 else ""
        raise ValueError(f"target must be between 0 and 1 where it is dense, got {high if low >= 0 else low}{hint}")


def check_prior(prior: Tensor) -> None:
    prior = prior.detach()
    wrong = ~((prior >= 0) & (prior <= 1))
    if bool(wrong.any()):
        raise _checks.bad_prior(float(prior[wrong][0]))


def check_numbers(k: Tensor, tau: Tensor, samples: int) -> None:
    k, tau = k.detach(), tau.detach()
    wrong = ~((tau > 0) & tau.isfinite())
    if bool(wrong.any()):
        raise _checks.bad_tau(float(tau[wrong][0]))
    wrong = ~((k >= 0) & (k <= samples))
    if bool(wrong.any()):
        raise _checks.bad_count(float(k[wrong][0]), samples)


def needs_gradient(*values: object) -> bool:
    """Whether what is computed with these values has one."""
    return torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in values)


def is_readable(value: Tensor) -> bool:
    """Whether values can be looked at without waiting for a device, and are the ones to be computed with."""
    return value.device.type == "cpu" and is_eager()
