"""One rank's samples in the search for thresholds of many ranks: by the kernel, or in torch operations elsewhere."""

from typing import Any, Protocol

import torch
from torch import Tensor

from hypersimplex import _kernel
from hypersimplex.torch import _fused, _ops
from hypersimplex.torch._targets import Batch, Settings
from hypersimplex.torch.functional import threshold


class Part(Protocol):
    dtype: torch.dtype

    def counts(self) -> Tensor:
        """The sum of every class's targets."""

    def solve(self, k: Tensor) -> Tensor | None:
        """The thresholds of this rank's samples alone, or None without samples."""

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        """Active projections, active entries, ones, errors of the active, squared errors: five rows of classes.

        Where mu is NaN nothing is asked.
        """

    def gap(self, mu: Tensor, at: Tensor) -> Tensor:
        """The largest entry that is 0 at mu, and minus the smallest that is 1, of the classes `at`."""

    def gradient(self, mu: Tensor, low: Tensor, mean: Tensor, weight: Tensor, scale: float) -> Tensor:
        """scale * weight * (p - y - mean)/tau on the active entries, where the logits are."""


def part_of(batch: Batch, ignore_index: int, tau: Tensor) -> Part:
    kind = _KernelPart if batch.logits.device.type == "cpu" and not _ops.is_plain() else _PlainPart
    part: Part = kind(batch, ignore_index, tau)
    return part


def _wide(batch: Batch) -> tuple[Tensor, Tensor | None]:
    x = batch.logits.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return x, None if batch.dense is None else batch.dense.detach().to(x.dtype)


class _Counted:
    x: Tensor
    dense: Tensor | None
    labels: Tensor | None
    kept: Tensor | None

    def __init__(self, batch: Batch, ignore_index: int, tau: Tensor) -> None:
        self.x, self.dense = _wide(batch)
        self.dtype, self.tau, self.ignored = self.x.dtype, tau, ignore_index
        self.labels = None if batch.labels is None else batch.labels.contiguous()
        self.kept = None if self.labels is None else self.labels != ignore_index

    def counts(self) -> Tensor:
        if self.dense is not None:
            return self.dense.sum((0, 2), dtype=torch.float64)
        assert self.labels is not None
        assert self.kept is not None
        zeros = torch.zeros(self.x.shape[1], dtype=torch.float64, device=self.x.device)
        safe = torch.where(self.kept, self.labels, 0).reshape(-1)
        return zeros.index_add(0, safe, self.kept.reshape(-1).to(torch.float64))

    def gap(self, mu: Tensor, at: Tensor) -> Tensor:
        x = self.x[:, at]
        above = x - mu[at, None] > self.tau[at, None] / 2
        lost = torch.zeros_like(above) if self.kept is None else ~self.kept[:, None]
        zero = torch.where(above | lost, -torch.inf, x).movedim(1, 0).flatten(1)
        one = torch.where(~above | lost, -torch.inf, -x).movedim(1, 0).flatten(1)
        # A rank without samples has no largest entry.
        none = x.new_full((at.shape[0], 1), -torch.inf)
        return torch.stack([torch.cat((ends, none), 1).amax(1).to(torch.float64) for ends in (zero, one)])


class _KernelPart(_Counted):
    def __init__(self, batch: Batch, ignore_index: int, tau: Tensor) -> None:
        super().__init__(batch, ignore_index, tau)
        if self.x.is_neg() or torch.empty_like(self.x).stride() != self.x.stride():
            self.x = self.x.contiguous().resolve_neg()
        if self.dense is not None and (self.dense.stride() != self.x.stride() or self.dense.is_neg()):
            self.dense = torch.empty_like(self.x).copy_(self.dense)

    def solve(self, k: Tensor) -> Tensor | None:
        if self.x.numel() == 0 or (self.kept is not None and not bool(self.kept.any())):
            return None
        batch = Batch(self.x, self.labels, self.dense, ())
        answer = _fused.solve(batch, Settings(None, self.ignored, "sum", k, None, self.tau), False)
        return torch.tensor(answer.numbers[: k.shape[0]], dtype=torch.float64)

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        sums = torch.empty((5, mu.shape[0]), dtype=torch.float64)
        self._run(mu, low, None, None, 1.0, sums, None)
        return sums

    def gradient(self, mu: Tensor, low: Tensor, mean: Tensor, weight: Tensor, scale: float) -> Tensor:
        grad = torch.empty_like(self.x)
        self._run(mu, low, mean, weight, scale, None, grad)
        return grad

    def _run(self, mu: Tensor, low: Tensor, mean: Any, weight: Any, scale: float, sums: Any, grad: Any) -> None:
        arrays = (self.x, self.labels, self.dense, mu, low, self.tau, weight, mean, sums, grad)
        _kernel.share_at(
            self.dtype is torch.float64, self.x.shape, self.x.stride(), self.ignored,
            [0 if a is None else a.data_ptr() for a in arrays], scale, torch.get_num_threads(),
        )  # fmt: skip


class _PlainPart(_Counted):
    """Rows of samples that count, classes beside each other."""

    def __init__(self, batch: Batch, ignore_index: int, tau: Tensor) -> None:
        super().__init__(batch, ignore_index, tau)
        self.rows = self._as_rows(self.x)
        if self.dense is not None:
            self.targets = self._as_rows(self.dense)
        else:
            assert self.labels is not None
            assert self.kept is not None
            kept = self.kept.reshape(-1)
            self.rows = self.rows[kept]
            self.targets = self.labels.reshape(-1)[kept].unsqueeze(1)

    @staticmethod
    def _as_rows(array: Tensor) -> Tensor:
        return array.transpose(1, 2).reshape(-1, array.shape[1])

    def solve(self, k: Tensor) -> Tensor | None:
        return threshold(self.rows, k, self.tau, dim=0).to(torch.float64) if self.rows.shape[0] else None

    def _errors(self, mu: Tensor, low: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        c = mu.to(self.dtype)
        d = torch.where(mu.isfinite(), (mu - c.to(mu.dtype)) + low, 0).to(self.dtype)
        t = ((self.rows - c) - d) / self.tau.to(self.dtype)
        p = t.clamp(0, 1)
        if self.dense is not None:
            return t, p, p - self.targets
        return t, p, p.scatter_add(1, self.targets, p.new_full((), -1).expand(self.targets.shape))

    def sums(self, mu: Tensor, low: Tensor, error: Tensor) -> Tensor:
        t, p, e = self._errors(mu, low)
        ones, active = t >= 1, (t > 0) & (t < 1)
        columns = (torch.where(active, p, 0), active, ones, torch.where(active, e, 0), e.square())
        return torch.stack([column.sum(0, dtype=torch.float64) for column in columns])

    def gradient(self, mu: Tensor, low: Tensor, mean: Tensor, weight: Tensor, scale: float) -> Tensor:
        t, _, e = self._errors(mu, low)
        factor = (weight * scale / self.tau).to(self.dtype)
        grad = torch.where((t > 0) & (t < 1), (e - mean.to(self.dtype)) * factor, 0)
        samples, classes, positions = self.x.shape
        if self.kept is not None:
            whole = grad.new_zeros((samples * positions, classes))
            whole[self.kept.reshape(-1)] = grad
            grad = whole
        return grad.reshape(samples, positions, classes).transpose(1, 2)
