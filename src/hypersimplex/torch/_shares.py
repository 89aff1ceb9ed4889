"""One rank's samples in the search for thresholds of many ranks: by the kernel, or in torch operations elsewhere."""

from typing import Protocol

import torch
from torch import Tensor

from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch.backends import pick


class Share(Protocol):
    dtype: torch.dtype

    def counts(self) -> Tensor:
        """The sum of every class's targets."""

    def solve(self, k: Tensor) -> Tensor | None:
        """The thresholds of this rank's samples alone, or None without samples."""

    def sums(self, mu: Tensor, low: Tensor) -> Tensor:
        """Active projections, active entries, ones, errors of the active, squared errors: five rows of classes.

        Where mu is NaN nothing is asked.
        """

    def gap(self, mu: Tensor, at: Tensor) -> Tensor:
        """The largest entry that is 0 at mu, and minus the smallest that is 1, of the classes `at`."""

    def gradient(self, mu: Tensor, low: Tensor, mean: Tensor, weight: Tensor, scale: float) -> Tensor:
        """scale * weight * (p - y - mean)/tau on the active entries, where the logits are."""


def share_of(batch: Batch, ignore_index: int, tau: Tensor) -> Share:
    return _BackendShare(batch, ignore_index, tau)


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


class _BackendShare(_Counted):
    def __init__(self, batch: Batch, ignore_index: int, tau: Tensor) -> None:
        self.backend = pick(batch.logits)
        super().__init__(self.backend.prepare(batch), ignore_index, tau)
        self.batch = Batch(self.x, self.labels, self.dense, ())

    def solve(self, k: Tensor) -> Tensor | None:
        if self.x.numel() == 0 or (self.kept is not None and not bool(self.kept.any())):
            return None
        settings = Settings(None, self.ignored, "sum", k, None, self.tau)
        return self.backend.loss(self.batch, settings, False).mu_and_k[0]

    def sums(self, mu: Tensor, low: Tensor) -> Tensor:
        return self.backend.sums(self.batch, self.ignored, self.tau, mu, low)

    def gradient(self, mu: Tensor, low: Tensor, mean: Tensor, weight: Tensor, scale: float) -> Tensor:
        return self.backend.gradient(self.batch, self.ignored, self.tau, mu, low, mean, weight * scale)
