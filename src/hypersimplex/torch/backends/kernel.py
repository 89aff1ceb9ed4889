"""CPU tensors by the compiled kernel.

At small sizes the arithmetic takes two microseconds and everything else is the interpreter: so contiguous tensors and
plain numbers take the shortest way there is, and everything else is first made even by `_boundary`.
"""

from array import array
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks, _kernel
from hypersimplex._curves import CURVES
from hypersimplex.torch import _batch
from hypersimplex.torch._batch import Batch, Number, Outcome, Settings
from hypersimplex.torch._boundary import FLOATS, alike, doubles, even, memory, slices, view
from hypersimplex.torch.backends.kernel_budgets import box as box
from hypersimplex.torch.backends.kernel_budgets import segments as segments

_DOUBLE = torch.float64
_INDEX = {curve: index for index, curve in enumerate(CURVES)}


def project(
    x: Tensor,
    k: Number,
    tau: Number,
    dim: int,
    *,
    want_y: bool = True,
    want_mu: bool = True,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor | None]:
    dtype, at = x.dtype, x.data_ptr()
    if type(k) is int:
        k = _number("k", k)
    if (
        want_mu or type(k) is not float or type(tau) is not float
        or dtype not in FLOATS or not at or not x.is_contiguous() or x.is_neg()
    ):  # fmt: skip
        return _project(x, k, tau, dim, want_y, want_mu, curve)
    y = torch.empty_like(x)
    failure = _kernel.project_at(
        dtype is _DOUBLE, at, y.data_ptr(), x.shape, dim, k, tau, torch.get_num_threads(), _INDEX[curve]
    )
    if failure:
        _checks.raise_failure(failure, k, tau, x.shape[dim], f"dim {dim}")
    return y, None


def _project(
    x: Tensor, k: Number, tau: Number, dim: int, want_y: bool, want_mu: bool, curve: str
) -> tuple[Tensor | None, Tensor | None]:
    dtype = x.dtype
    x = even("input", x, dim)
    y = torch.empty_like(x) if want_y else None
    mu = torch.empty(slices(x, dim), dtype=_DOUBLE, device="cpu") if want_mu else None
    k, ks = _per_slice("k", k, x, dim)
    tau, taus = _per_slice("tau", tau, x, dim)
    failure = _kernel.project(
        x.numpy(), k, tau, y=view(y), mu=view(mu), ks=view(ks), taus=view(taus), axis=dim,
        threads=torch.get_num_threads(), curve=_INDEX[curve],
    )  # fmt: skip
    if failure:
        k, tau = k if ks is None else ks, tau if taus is None else taus
        _checks.raise_failure(failure, k, tau, x.shape[dim], f"dim {dim}")
    return y if y is None or y.dtype is dtype else y.to(dtype), mu


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return _checks.check_number(name, value)  # says what is wrong


def _per_slice(name: str, value: Number, x: Tensor, dim: int) -> tuple[float, Tensor | None]:
    """A number for all slices, or one for each."""
    if isinstance(value, Tensor):
        return 0.0, doubles(name, value, slices(x, dim))
    return _number(name, value), None


def binary(x: Tensor, k: Number, dim: int) -> Tensor:
    dtype = x.dtype
    x = even("input", x, dim)
    y = torch.empty_like(x)
    k, ks = _per_slice("k", k, x, dim)
    failure = _kernel.binary(x.numpy(), k, y.numpy(), ks=view(ks), axis=dim, threads=torch.get_num_threads())
    if failure:
        _checks.raise_failure(failure, k if ks is None else ks, 1.0, x.shape[dim], f"dim {dim}")
    return y.to(dtype)


def pullback(
    y: Tensor,
    v: Tensor,
    tau: Number,
    dim: int,
    needs: tuple[bool, ...] = (True, True, True),
    *,
    curve: str = "ramp",
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dtype, shape, y_at, v_at = y.dtype, y.shape, y.data_ptr(), v.data_ptr()
    if (
        type(tau) is not float or needs[1] or needs[2] or v.dtype is not dtype or dtype not in FLOATS
        or v.shape != shape
        or not y_at or not y.is_contiguous() or y.is_neg() or not v_at or not v.is_contiguous() or v.is_neg()
    ):  # fmt: skip
        return _pullback(y, v, tau, dim, needs, curve)
    to_x = torch.empty_like(y)
    _kernel.backward_at(
        dtype is _DOUBLE, y_at, v_at, to_x.data_ptr(), shape, dim, tau, torch.get_num_threads(), _INDEX[curve]
    )
    return to_x, None, None


def _pullback(
    y: Tensor, v: Tensor, tau: Number, dim: int, needs: tuple[bool, ...], curve: str
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dtype = v.dtype
    if v.shape != y.shape:
        raise _checks.not_as_saved(v.shape, y.shape)
    y = even("y", y.to(dtype), dim)
    v = alike("v", v, y)
    to_x = torch.empty_like(y) if needs[0] else None
    to_k, to_tau = (
        torch.empty(slices(y, dim), dtype=_DOUBLE, device="cpu") if need else None for need in (needs[1], needs[2])
    )
    tau, taus = _per_slice("tau", tau, y, dim)
    _kernel.backward(
        y.numpy(), v.numpy(), tau, grad=view(to_x), grad_k=view(to_k), grad_tau=view(to_tau), taus=view(taus),
        axis=dim, threads=torch.get_num_threads(), curve=_INDEX[curve],
    )  # fmt: skip
    return to_x if to_x is None or dtype is y.dtype else to_x.to(dtype), to_k, to_tau


def loss(batch: Batch, settings: Settings, with_gradient: bool) -> Outcome:
    logits, target, dense, _ = batch
    weight, ignored, reduction, k, prior, tau, _ = settings
    x = logits
    if x.dtype not in FLOATS or not x.is_contiguous() or x.is_neg() or not x.data_ptr():
        x = even("input", x)
    shape, stride = x.shape, x.stride()
    classes = shape[1]
    if dense:
        target = alike("target", target, x)
        _batch.check_dense(target)
    elif type(target) is not Tensor or not target.is_contiguous() or not target.data_ptr():
        target = memory("target", target).contiguous()
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
    weighted = (target, weight) if weight is not None and not dense and reduction == "mean" else None
    numbers = array("d", bytes(16 * classes))
    room = numbers.buffer_info()[0]
    found = _kernel.loss_at(
        x.dtype is _DOUBLE, shape, stride, x.data_ptr(), 0 if dense else target.data_ptr(), ignored,
        target.data_ptr() if dense else 0, 0 if k is None else k.data_ptr(), prior is not None,
        0 if taus is None else taus.data_ptr(), number, 0 if weight is None else weight.data_ptr(),
        reduction == "mean" and weighted is None, 0 if grad is None else grad.data_ptr(), room, room + 8 * classes,
        torch.get_num_threads(),
    )  # fmt: skip
    if len(found) == 3:
        _fail_loss(found, numbers, tau if taus is None else taus)
    total, samples = found
    if weighted is not None:
        total = total / _divide_by_weights(grad, *weighted, ignored)
    elif reduction == "mean":
        total = total / samples if samples else float("nan")
    value = torch.scalar_tensor(total, dtype=_batch.result_dtype(logits), device="cpu")
    return Outcome(value, numbers, samples, grad)


def _divide_by_weights(grad: Tensor | None, labels: Tensor, weight: Tensor, ignored: int) -> float:
    """The sum of the samples' weights, NaN without one; the gradient is divided by it."""
    total = float(weight[labels[labels != ignored]].sum())
    if grad is not None and total:
        grad.div_(total)
    return total or float("nan")


def _per_class(name: str, value: Any, classes: int) -> Tensor:
    if isinstance(value, Tensor):
        value = memory(name, value.detach())
    return _batch.per_class(name, value, classes, torch.device("cpu")).detach().contiguous()


def _fail_loss(failure: Any, numbers: "array[float]", tau: Any) -> None:
    what, at, limit = failure
    classes = len(numbers) // 2
    if what == "label":
        raise _checks.bad_label(limit, classes)
    k = numbers[classes + at]
    if what == "k":
        raise _checks.bad_count(k, limit)
    _checks.raise_failure(failure, k, tau, limit, "dim 0")


def prepare(batch: Batch) -> Batch:
    x = even("input", batch.logits)
    target = alike("target", batch.target, x) if batch.dense else memory("target", batch.target).contiguous()
    return Batch(x, target, batch.dense, batch.shape)


def sums(batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor) -> Tensor:
    answer = torch.empty((5, batch.classes), dtype=_DOUBLE, device="cpu")
    _at_thresholds(prepare(batch), ignore_index, {"mu": mu, "low": low, "tau": tau}, sums=answer)
    return answer


def gradient(
    batch: Batch, ignore_index: int, tau: Tensor, mu: Tensor, low: Tensor, mean: Tensor, factor: Tensor
) -> Tensor:
    batch = prepare(batch)
    answer = torch.empty_like(batch.logits)
    numbers = {"mu": mu, "low": low, "tau": tau, "mean": mean, "factor": factor}
    _at_thresholds(batch, ignore_index, numbers, grad=answer)
    return answer


def _at_thresholds(
    batch: Batch, ignore_index: int, numbers: dict[str, Tensor], sums: Tensor | None = None, grad: Tensor | None = None
) -> None:
    labels, dense = (None, batch.target) if batch.dense else (batch.target, None)
    x, dense, grad = (t if t is None or t.dim() == 3 else t.unsqueeze(2) for t in (batch.logits, dense, grad))
    arrays = {name: doubles(name, value, (batch.classes,)).numpy() for name, value in numbers.items()}
    _kernel.at_thresholds(
        view(x), labels=view(labels), dense=view(dense), ignored=ignore_index, threads=torch.get_num_threads(),
        sums=view(sums), grad=view(grad), **arrays,
    )  # fmt: skip
