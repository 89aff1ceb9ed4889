"""CPU tensors by the compiled kernel.

At small sizes the arithmetic takes two microseconds and everything else is the interpreter: so contiguous tensors and
plain numbers take the shortest way there is, and everything else is first made even by `_boundary`.
"""

from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks, _kernel
from hypersimplex.torch import _batch
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch._boundary import FLOATS, alike, doubles, even, memory, slices

_DOUBLE = torch.float64

# The kernel's threads are those of the framework.
_kernel.use_openmp()


def project(
    x: Tensor, k: Number, tau: Number, dim: int, *, want_y: bool = True, want_mu: bool = True
) -> tuple[Tensor | None, Tensor | None]:
    dtype = x.dtype
    if dtype not in FLOATS or not x.is_contiguous() or x.is_neg():
        x = even("input", x, dim)
    at = x.data_ptr()
    if not at:
        x = even("input", x, dim)
        at = x.data_ptr()
    y = torch.empty_like(x) if want_y else None
    mu = torch.empty(slices(x, dim), dtype=torch.float64, device="cpu") if want_mu else None
    ks, k_at, k_number = (None, 0, k) if type(k) is float else _per_slice("k", k, x, dim)
    taus, tau_at, tau_number = (None, 0, tau) if type(tau) is float else _per_slice("tau", tau, x, dim)
    if (ks is None or k_at) and (taus is None or tau_at):  # or there is no slice
        failure = _kernel.project_at(
            x.dtype is _DOUBLE, at, 0 if y is None else y.data_ptr(), 0 if mu is None else mu.data_ptr(),
            x.shape, x.stride(), dim, k_at, k_number, tau_at, tau_number, 0, torch.get_num_threads(),
        )  # fmt: skip
        if failure:
            _fail(failure, k if ks is None else ks, tau if taus is None else taus, x.shape[dim], dim)
    return y if y is None or y.dtype is dtype else y.to(dtype), mu


def _per_slice(name: str, value: Number, x: Tensor, dim: int) -> tuple[Tensor | None, int, float]:
    """A number for all slices, or the address of one for each; the tensor is held while the kernel reads it."""
    if isinstance(value, Tensor):
        each = doubles(name, value, slices(x, dim))
        return each, each.data_ptr(), 0.0
    try:
        return None, 0, float(value)
    except (OverflowError, TypeError, ValueError):
        return None, 0, _checks.check_number(name, value)  # says what is wrong


def binary(x: Tensor, k: Number, dim: int) -> Tensor:
    dtype = x.dtype
    x = even("input", x, dim)
    y = torch.empty_like(x)
    ks, k_at, number = _per_slice("k", k, x, dim)
    if ks is None or k_at:
        failure = _kernel.binary_at(
            x.dtype is torch.float64, x.data_ptr(), y.data_ptr(), x.shape, x.stride(), dim,
            k_at, number, torch.get_num_threads(),
        )  # fmt: skip
        if failure:
            _fail(failure, k if ks is None else ks, 1.0, x.shape[dim], dim)
    return y.to(dtype)


def pullback(
    y: Tensor, v: Tensor, tau: Number, dim: int, needs: tuple[bool, ...] = (True, True, True)
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dtype = v.dtype
    if y.dtype is not dtype or dtype not in FLOATS or not y.is_contiguous() or y.is_neg() or not y.data_ptr():
        y = even("y", y.to(dtype), dim)
    if v.dtype is not y.dtype or v.stride() != y.stride() or v.is_neg() or not v.data_ptr():
        v = alike("v", v, y)
    to_x = torch.empty_like(y) if needs[0] else None
    to_k = torch.empty(slices(y, dim), dtype=torch.float64, device="cpu") if needs[1] else None
    to_tau = torch.empty(slices(y, dim), dtype=torch.float64, device="cpu") if needs[2] else None
    taus, tau_at, number = (None, 0, tau) if type(tau) is float else _per_slice("tau", tau, y, dim)
    if taus is None or tau_at:  # or there is no slice
        _kernel.backward_at(
            y.dtype is torch.float64, y.data_ptr(), v.data_ptr(),
            0 if to_x is None else to_x.data_ptr(),
            0 if to_k is None else to_k.data_ptr(),
            0 if to_tau is None else to_tau.data_ptr(),
            y.shape, y.stride(), dim, tau_at, number, torch.get_num_threads(),
        )  # fmt: skip
    return to_x if to_x is None or dtype is y.dtype else to_x.to(dtype), to_k, to_tau


def _fail(failure: _checks.Failure, k: Number, tau: Number, n: int, dim: int) -> None:
    at = failure[1]
    numbers = [float(v.flatten()[at]) if isinstance(v, Tensor) else v for v in (k, tau)]
    _checks.raise_failure(failure, numbers[0], numbers[1], n, f"dim {dim}")


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    logits, labels, dense, _ = batch
    weight, ignored, reduction, k, prior, tau = settings
    x = logits
    if x.dtype not in FLOATS or not x.is_contiguous() or x.is_neg() or not x.data_ptr():
        x = even("input", x)
    shape, stride = x.shape, x.stride()
    classes = shape[1]
    if labels is None:
        assert dense is not None
        dense = alike("target", dense, x)
        _batch.check_dense(dense)
    elif type(labels) is not Tensor or not labels.is_contiguous() or not labels.data_ptr():
        labels = memory("target", labels).contiguous()
    if prior is not None:
        k = _per_class("prior", prior, classes)
        _batch.check_prior(k)
    elif k is not None:
        k = _per_class("k", k, classes)
    if weight is not None:
        weight = _per_class("weight", weight, classes)
    taus, number = (None, tau) if isinstance(tau, float) else (_per_class("tau", tau, classes), 0.0)
    if len(shape) == 2:
        shape, stride = (shape[0], classes, 1), (*stride, 1)  # type: ignore[assignment]
    grad = torch.empty_like(x) if with_gradient else None
    mu_and_k = torch.empty((2, classes), dtype=torch.float64, device="cpu")
    room = mu_and_k.data_ptr()
    found = _kernel.loss_at(
        x.dtype is torch.float64, shape, stride, x.data_ptr(),
        0 if labels is None else labels.data_ptr(), ignored, 0 if dense is None else dense.data_ptr(),
        0 if k is None else k.data_ptr(), prior is not None, 0 if taus is None else taus.data_ptr(), number,
        0 if weight is None else weight.data_ptr(), 0, 1.0, reduction == "mean",
        0 if grad is None else grad.data_ptr(), room, room + 8 * classes, torch.get_num_threads(),
    )  # fmt: skip
    if len(found) == 3:
        _fail_loss(found, mu_and_k, tau if taus is None else taus)
    total, samples = found  # type: ignore[misc]
    if reduction == "mean":
        total = total / samples if samples else float("nan")
    value = torch.scalar_tensor(total, dtype=_batch.result_dtype(logits), device="cpu")
    return Outcome(value, mu_and_k, samples, grad)


def _per_class(name: str, value: Any, classes: int) -> Tensor:
    if isinstance(value, Tensor):
        value = memory(name, value.detach())
    return _batch.per_class(name, value, classes, torch.device("cpu")).detach().contiguous()


def _fail_loss(failure: Any, mu_and_k: Tensor, tau: Any) -> None:
    what, at, limit = failure
    classes = mu_and_k.shape[1]
    if what == "label":
        raise _checks.bad_label(limit, classes)
    k = float(mu_and_k[1, at])
    if what == "k":
        raise _checks.bad_count(k, limit)
    _fail(failure, k, tau, limit, 0)


def prepare(batch: Batch) -> Batch:
    x = even("input", batch.logits)
    labels = None if batch.labels is None else memory("target", batch.labels).contiguous()
    return Batch(x, labels, None if batch.dense is None else alike("target", batch.dense, x), batch.shape)


def sums(batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor) -> Tensor:
    answer = torch.empty((5, batch.classes), dtype=torch.float64, device="cpu")
    _part(batch, ignore_index, tau, mu, low, None, None, answer, None)
    return answer


def gradient(
    batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor, mean: Tensor, factor: Tensor
) -> Tensor:
    batch = prepare(batch)
    answer = torch.empty_like(batch.logits)
    _part(batch, ignore_index, tau, mu, low, mean, factor, None, answer)
    return answer


def _part(
    batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor,
    mean: Tensor | None, factor: Tensor | None, sums: Tensor | None, grad: Tensor | None,
) -> None:  # fmt: skip
    x, labels, dense, _ = prepare(batch)
    given = {"mu": mu, "low": low, "tau": tau, "factor": factor, "mean": mean}
    numbers = [None if v is None else doubles(name, v, (batch.classes,)) for name, v in given.items()]
    arrays = (x, labels, dense, *numbers, sums, grad)
    _kernel.share_at(
        x.dtype is torch.float64, x.shape, x.stride(), ignore_index,
        [0 if a is None else a.data_ptr() for a in arrays], 1.0, torch.get_num_threads(),
    )  # fmt: skip
