"""soft_assignment for NumPy, and the rows of it in memory, which torch's CPU tensors share."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypersimplex import _assignment, _checks, _kernel
from hypersimplex._numpy import per_slice, prepare, threads

Array = NDArray[Any]


def soft_assignment(x: ArrayLike, k: ArrayLike, capacity: ArrayLike, tau: float = 1.0) -> tuple[Array, Array]:
    """Solve argmin |y - x/tau|^2 over 0 <= y <= 1, where rows sum to k and columns to at most their capacity.

    y is a soft assignment of tokens (rows) to experts (columns). It equals clip((x - a_i - b_j)/tau, 0, 1) with one
    number a_i per token and one bias b_j >= 0 per expert. An expert with room left has bias 0.

    Return y and b. The rows of y are `soft_binary_argmax(x - b, k, tau)`.

    Args:
        x: floating-point array of tokens and experts. -inf keeps a token from an expert.
        k: the sum of every row: a number, or one per token (0 for padding).
        capacity: the largest sum of a column: a number, or one per expert.
        tau: temperature, positive.

    >>> x = np.array([[2.0, 1.0], [3.0, 0.5], [1.5, 1.0], [0.5, 1.0]])
    >>> y, bias = soft_assignment(x, k=1, capacity=2)
    >>> y
    array([[0.625, 0.375],
           [1.   , 0.   ],
           [0.375, 0.625],
           [0.   , 1.   ]])
    >>> bias
    array([0.75, 0.  ])
    """
    x, dtype, _ = prepare(x, -1)
    if x.ndim != 2:
        raise _checks.not_a_matrix("x", x.shape)
    x = np.ascontiguousarray(x)
    k_number, k_array = per_slice("k", k, x.shape[:1])
    rows = MemoryRows(x, k_number, k_array, _checks.check_number("tau", tau), threads(), "axis -1")
    limits = _assignment.as_capacity(capacity, x.shape[1])
    found = _assignment.find(rows, limits, np.zeros(x.shape[1]))
    y, bias = rows.y, found.bias.astype(x.dtype)
    return y if y.dtype == dtype else y.astype(dtype), bias


def tolerance(double: bool) -> float:
    """What a search can reach in double precision, or in single, relative to a capacity."""
    return 1e-9 if double else 9e-6


def average(levels: Array, rows: int, add: Callable[[Array], Array]) -> Array:
    """Over ranks, by their numbers of rows; infinite levels count for nothing."""
    known = np.isfinite(levels)
    sums, count = add(rows * np.stack((np.where(known, levels, 0), known)).astype(np.float64))
    mean: Array = sums / np.maximum(count, 1)
    return mean


class MemoryRows:
    """Rows of contiguous float32 or float64 memory, by the kernel. `add` and `most` are sums and maxima over ranks."""

    def __init__(
        self,
        x: Array,
        k: float,
        k_array: Array | None,
        tau: float,
        count: int,
        where: str,
        add: Callable[[Array], Array] = np.asarray,
        most: Callable[[Array], Array] = np.asarray,
    ) -> None:
        self.x, self.k, self.k_array, self.tau, self.threads, self.where = x, k, k_array, tau, count, where
        self.add, self.most = add, most
        self.tolerance = tolerance(x.dtype == np.float64)
        self.z, self.y, self.mu = np.empty_like(x), np.empty_like(x), np.empty(len(x))

    def project(self, bias: Array) -> None:
        np.subtract(self.x, bias.astype(self.x.dtype), out=self.z)
        failure = _kernel.project(self.z, self.k, self.tau, self.y, self.mu, self.k_array, None, -1, self.threads)
        if failure:
            k = self.k if self.k_array is None else self.k_array
            _checks.raise_failure(failure, k, self.tau, self.x.shape[1], self.where)

    def place(self, bias: Array) -> Array:
        self.project(bias)
        sums = np.empty(self.x.shape[1])
        _kernel.coactive(self.y, 0.0, 1.0, sums=sums, threads=self.threads)
        return self.add(sums)

    def pairs(self, window: float) -> Array:
        matrix = np.empty((self.x.shape[1],) * 2)
        if window <= self.tau:
            _kernel.coactive(self.y, 0.0, 1.0, matrix=matrix, threads=self.threads)
        else:
            with np.errstate(invalid="ignore"):  # inf - inf: a row that is all infinities is settled
                above = self.z - self.mu.astype(self.z.dtype)[:, None]
            low, high = (self.tau - window) / 2, (self.tau + window) / 2
            _kernel.coactive(above, low, high, matrix=matrix, threads=self.threads)
        return self.add(matrix)

    def sample(self, stride: int) -> "MemoryRows":
        k = None if self.k_array is None else self.k_array[::stride].copy()
        x = self.x[::stride].copy()
        return MemoryRows(x, self.k, k, self.tau, self.threads, self.where, self.add, self.most)

    def widen(self) -> None:
        self.x, self.tolerance = self.x.astype(np.float64), tolerance(True)
        self.z, self.y = np.empty_like(self.x), np.empty_like(self.x)

    def levels(self, share: float) -> Array:
        at = min(int((1 - share) * len(self.x)), len(self.x) - 1)
        own = np.partition(self.x, at, 0)[at] if len(self.x) else np.zeros(self.x.shape[1])
        return average(own, len(self.x), self.add)

    def demand(self) -> tuple[float, Array, float]:
        usable, k = self._usable()
        finite = self.x if usable is None else self.x[np.isfinite(self.x)]
        ends = np.array([finite.max(), -finite.min()] if finite.size else [0.0, 0.0], np.float64)
        columns = np.full(self.x.shape[1], len(self.x)) if usable is None else usable.sum(0)
        total = self.add(np.array([k.sum(), *columns], np.float64))
        return float(total[0]), total[1:], float(self.most(ends).sum())

    def forced(self, order: NDArray[np.int64]) -> Array:
        usable, k = self._usable()
        if usable is None:
            usable = np.ones(self.x.shape, bool)
        x, k = self.x[~np.isnan(self.x).any(1)][:, order], k[:, None]
        outside = usable.sum(1, keepdims=True) - np.cumsum(usable[:, order], 1)
        certain = np.minimum(np.cumsum(x == np.inf, 1), k)
        return self.add(np.maximum(certain, k - outside).sum(0))

    def _usable(self) -> tuple[Array | None, Array]:
        """Where rows without a NaN are above -inf, None for everywhere; and the k of these rows."""
        k = np.full(len(self.x), self.k) if self.k_array is None else self.k_array
        with np.errstate(invalid="ignore"):
            if np.isfinite(self.x.sum(dtype=np.float64)):
                return None, k
        good = ~np.isnan(self.x).any(1)
        return self.x[good] > -np.inf, k[good]
