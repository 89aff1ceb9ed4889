"""The rows of soft_assignment as tensors: CPU memory by the kernel, other devices by their backend, over all ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hypersimplex import _assignment, _checks, _kernel
from hypersimplex._numpy_assignment import MemoryRows, average, tolerance
from hypersimplex.torch._boundary import computed, doubles, even, widest
from hypersimplex.torch._ranks import Ranks
from hypersimplex.torch.backends import Backend, kernel, pick

Array = NDArray[Any]


def solve(
    rows: Any, x: Tensor, capacity: Tensor, start: Tensor | None = None, gradients: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """y, in the dtype it was computed in, the biases, and the inverse if gradients, which need it, are wanted."""
    limits = limits_of(capacity, x.shape[1])
    first = np.zeros(x.shape[1]) if start is None else _host(start)
    found = _assignment.find(rows, limits, np.maximum(first - first.min(initial=0.0), 0))
    y, bias = torch.as_tensor(rows.y, device=x.device), torch.as_tensor(found.bias).to(x.device, computed(x.dtype))
    if not gradients:
        return y, bias, None
    return y, bias, torch.as_tensor(_assignment.inverse(rows, found.bias)).to(x.device, bias.dtype)


def limits_of(capacity: Tensor, experts: int) -> Array:
    return _assignment.as_capacity(_host(capacity), experts)


def column_sums(v: Tensor) -> Tensor:
    """Of CPU memory, without its NaN."""
    sums = np.empty(v.shape[1])
    _kernel.coactive(v.numpy(), 0.0, 1.0, sums=sums, threads=torch.get_num_threads())
    return torch.from_numpy(sums).to(v.dtype)


def rows_of(x: Tensor, k: Tensor, tau: Tensor, ranks: Ranks | None = None) -> Any:
    """The rows of this process; sums over them are those of all ranks."""
    temperature = float(tau.detach())
    _checks.check_numbers(0, temperature, x.shape[1], "dim -1")
    add, most = (_over(ranks.sum), _over(ranks.maximum)) if ranks else (np.asarray, np.asarray)
    backend, k = pick(x), k.detach()
    if backend is not kernel:
        return TensorRows(x.detach(), k, temperature, backend, add, most)
    memory = even("input", x).contiguous().numpy()
    one, each = (0.0, doubles("k", k, x.shape[:1]).numpy()) if k.dim() else (float(k), None)
    return MemoryRows(memory, one, each, temperature, torch.get_num_threads(), "dim -1", add, most)


def _over(reduce: Callable[[Tensor], Tensor]) -> Callable[[Array], Array]:
    return lambda value: reduce(torch.from_numpy(value)).numpy()


class TensorRows:
    """Rows on any device: only sums of columns and pairs of columns come to the host."""

    def __init__(
        self, x: Tensor, k: Tensor, tau: float, backend: Backend,
        add: Callable[[Array], Array], most: Callable[[Array], Array],
    ) -> None:  # fmt: skip
        self.x = x.to(computed(x.dtype))
        self.k, self.tau, self.backend, self.add, self.most = k, tau, backend, add, most
        self.tolerance = tolerance(self.x.dtype == torch.float64)

    def project(self, bias: Array) -> None:
        self.z = self.x - torch.as_tensor(bias).to(self.x.device, self.x.dtype)
        self.y, mu = self.backend.project(self.z, self.k, self.tau, -1)
        self.mu = mu.to(self.y.dtype).unsqueeze(1)

    def place(self, bias: Array) -> Array:
        self.project(bias)
        return self.add(_host(torch.nan_to_num(self.y).sum(0)))

    def pairs(self, window: float) -> Array:
        if window <= self.tau:
            inside = (self.y > 0) & (self.y < 1)
        else:
            inside = ((self.z - self.mu) - self.tau / 2).abs() < window / 2
        mask = inside.to(self.y.dtype)
        matrix = _host(mask.T @ (mask / mask.sum(1, keepdim=True).clamp(min=1)))
        matrix = np.triu(matrix, 1)  # exactly symmetric
        return self.add(matrix + matrix.T)

    def sample(self, stride: int) -> "TensorRows":
        k = self.k[::stride] if self.k.dim() else self.k
        return TensorRows(self.x[::stride], k, self.tau, self.backend, self.add, self.most)

    def widen(self) -> None:
        self.x = self.x.to(widest(self.x.device))
        self.tolerance = tolerance(self.x.dtype == torch.float64)

    def levels(self, share: float) -> Array:
        rows = self.x.shape[0]
        own = self.x.kthvalue(min(int((1 - share) * rows) + 1, rows), 0).values if rows else self.x.sum(0)
        return average(_host(own), rows, self.add)

    def demand(self) -> tuple[float, Array, float]:
        usable, k = self._usable()
        finite = self.x[torch.isfinite(self.x)]
        ends = _host(torch.stack([finite.max(), -finite.min()])) if finite.numel() else np.zeros(2)
        total = self.add(np.array([float(k.sum()), *_host(usable.sum(0))]))
        return float(total[0]), total[1:], float(self.most(ends).sum())

    def forced(self, order: NDArray[np.int64]) -> Array:
        usable, k = self._usable()
        ordered = torch.from_numpy(order).to(self.x.device)
        outside = usable.sum(1, keepdim=True) - usable[:, ordered].cumsum(1)
        certain = torch.minimum((self.x[:, ordered] == torch.inf).cumsum(1), k.unsqueeze(1))
        return self.add(_host(torch.maximum(certain, k.unsqueeze(1) - outside).sum(0)))

    def _usable(self) -> tuple[Tensor, Tensor]:
        """Where rows are above -inf, and their k; rows without a solution ask for nothing."""
        k = self.k.expand(self.x.shape[0])
        usable = self.x > -torch.inf
        good = ~torch.isnan(self.x).any(1) & (k <= usable.sum(1))
        return usable & good.unsqueeze(1), torch.where(good, k, 0)


def _host(value: Tensor) -> Array:
    return value.detach().cpu().double().numpy()
