"""Box sections by another method: all breakpoints sorted, and the line between two of them. In float64, or exactly."""

import math
from bisect import bisect_left
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass
class Boxes:
    """Rows of problems: x, lower, upper and weight are (rows, n), total and tau (rows,)."""

    x: np.ndarray
    total: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    weight: np.ndarray
    tau: np.ndarray

    def arguments(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def random_boxes(rows: int, n: int, seed: int, dtype: Any = np.float64, infinite: bool = False) -> Boxes:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, n)) * 10.0 ** rng.uniform(-1, 1, (rows, 1))
    x = np.where(rng.random((rows, 1)) < 0.2, np.round(x), x)  # ties
    x = np.where(rng.random((rows, n)) < 0.05, -np.inf, x).astype(dtype).astype(np.float64)
    lower = rng.uniform(-2, 0.5, (rows, n))
    upper = lower + rng.uniform(0, 2, (rows, n)) * (rng.random((rows, n)) < 0.9)  # some are one point
    if infinite:
        lower = np.where((rng.random((rows, n)) < 0.3) & (x > -np.inf), -np.inf, lower)
        upper = np.where(rng.random((rows, n)) < 0.3, np.inf, upper)
    weight = np.where(rng.random((rows, 1)) < 0.3, 1.0, rng.uniform(0.2, 3, (rows, n)))
    lower, upper, weight = (v.astype(dtype).astype(np.float64) for v in (lower, upper, weight))
    ends = [np.clip(v, -9, 9) for v in (lower, np.where(x == -np.inf, lower, upper))]
    least, most = ((weight * v).sum(-1) for v in ends)
    total = least + (most - least) * rng.uniform(0.01, 0.99, rows)
    tau = 10.0 ** rng.uniform(-1.5, 1.5, rows)
    return Boxes(x, total, lower, upper, weight, tau)


def solve(b: Boxes, at_most: bool = False) -> np.ndarray:
    """One row after the other."""
    return np.stack([_row(b, r, at_most) for r in range(len(b.x))])


def _row(b: Boxes, r: int, at_most: bool) -> np.ndarray:
    x, lower, upper, weight = b.x[r], b.lower[r], b.upper[r], b.weight[r]
    total, tau = b.total[r], b.tau[r]

    def place(mu: Any) -> np.ndarray:
        return np.clip((x - np.multiply.outer(mu, weight)) / tau, lower, upper)

    if at_most and (weight * place(0.0)).sum() <= total:
        return place(0.0)
    points = np.concatenate([(x - tau * lower) / weight, (x - tau * upper) / weight])
    points = np.unique(points[np.isfinite(points)]) if np.isfinite(points).any() else np.zeros(1)
    points = np.concatenate([[points[0] - 1], points, [points[-1] + 1]])
    sums = (weight * place(points)).sum(-1)  # falls
    right = int(np.clip(np.searchsorted(-sums, -total), 1, len(points) - 1))
    lo, hi, most, least = points[right - 1], points[right], sums[right - 1], sums[right]
    # The first and the last piece go on as lines, flat or not.
    return place(lo + (hi - lo) * (most - total) / (most - least) if most > least else lo)


def solve_exactly(b: Boxes) -> np.ndarray:
    """As `solve`, in rational arithmetic: for numbers so far apart that float64 swallows one beside the other."""
    return np.array([_exact_row(b, r) for r in range(len(b.x))], np.float64)


def _exact_row(b: Boxes, r: int) -> list[float]:
    total, tau = Fraction(b.total[r]), Fraction(b.tau[r])
    rows = (b.x[r], b.lower[r], b.upper[r], b.weight[r])
    entries = [tuple(Fraction(v) if math.isfinite(v) else v for v in entry) for entry in zip(*rows, strict=True)]

    def place(mu: Fraction) -> list[Any]:
        return [min(max((x - mu * weight) / tau, lower), upper) for x, lower, upper, weight in entries]

    def missing(mu: Fraction) -> Fraction:
        return total - sum(entry[3] * y for entry, y in zip(entries, place(mu), strict=True))

    points = sorted(
        (x - tau * bound) / weight
        for x, lower, upper, weight in entries
        for bound in (lower, upper)
        if math.isfinite(bound)
    )
    points = [points[0] - 1, *points, points[-1] + 1]
    right = min(max(bisect_left(points, 0, key=missing), 1), len(points) - 1)
    lo, hi = points[right - 1], points[right]
    first, last = missing(lo), missing(hi)
    return [float(y) for y in place(lo if first == last else lo - (hi - lo) * first / (last - first))]
