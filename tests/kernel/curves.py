"""The smooth curves on one problem, asked of the kernel itself: a threshold in float64 proves itself by its sum."""

from __future__ import annotations

import numpy as np

from hypersimplex import _kernel
from tests.kernel.checks import THREADS, Numbers, laid_out, near
from tests.kernel.shapes import Problem

CURVES = ("ramp", "exp", "logistic", "laplace")
SMOOTH = (1, 2, 3)


def rise(curve: int, t: np.ndarray) -> np.ndarray:
    """S(t) in float64, as docs and design define it."""
    small = np.exp(-np.abs(t))
    if curve == 1:
        return np.where(t < 0, small, 1.0)
    if curve == 2:
        return np.where(t < 0, small, 1.0) / (1 + small)
    return np.where(t < 0, small / 2, 1 - small / 2)


def bisect(curve: int, x: np.ndarray, k: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y and mu of every row by 200 halvings in float64: slow and obviously right."""
    x = x.astype(np.float64)
    finite = np.where(np.isfinite(x), x, np.nan)
    reach = 800 * tau[:, None]
    lo, hi = np.nanmin(finite, 1, keepdims=True) - reach, np.nanmax(finite, 1, keepdims=True) + reach
    for _ in range(200):
        mu = lo / 2 + hi / 2
        many = rise(curve, (x - mu) / tau[:, None]).sum(1, keepdims=True) > k[:, None]
        lo, hi = np.where(many, mu, lo), np.where(many, hi, mu)
    return rise(curve, (x - hi) / tau[:, None]), hi[:, 0]


def pull_back(curve: int, y: np.ndarray, v: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, ...]:
    """The gradients to x, k and tau of sum(v * y) by the table of slopes, and the sum of the slopes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if curve == 1:
            s, t = np.where(y < 1, y, 0.0), np.log(y)
        elif curve == 2:
            s, t = y * (1 - y), np.log(y / (1 - y))
        else:
            s, t = np.minimum(y, 1 - y), np.where(y < 0.5, np.log(2 * y), -np.log(2 * (1 - y)))
    t = np.where(s > 0, t, 0.0)
    weight = s.sum(1)
    m = np.where(weight > 0, (s * v).sum(1) / np.where(weight > 0, weight, 1.0), 0.0)
    pull = s * (v - m[:, None])
    return pull / tau[:, None], m, -(pull * t).sum(1) / tau, weight


def solve(problem: Problem, given: Numbers, curve: int, threads: int) -> list[np.ndarray]:
    """y, mu and the gradients to x, k and tau, as rows."""
    arrays = [laid_out(part, problem.layout) for part in (given.x, given.v, 0 * given.v, 0 * given.v)]
    (x, v, y, grad), axis = (part[0].numpy() for part in arrays), arrays[0][1]
    mu, to_k, to_tau = np.empty((3, len(given.x)))
    at = {"axis": axis, "threads": threads, "curve": curve}
    each = {"ks": given.k, "taus": given.tau} if problem.apart else {}
    assert _kernel.project(x, given.k[0], given.tau[0], y=y, mu=mu, **each, **at) is None
    each.pop("ks", None)
    assert _kernel.backward(y, v, given.tau[0], grad=grad, grad_k=to_k, grad_tau=to_tau, **each, **at) is None
    rows = [np.ascontiguousarray(np.moveaxis(part, axis, -1).reshape(given.x.shape)) for part in (y, grad)]
    return [rows[0], mu, rows[1], to_k, to_tau]


def check_solution(curve: int, given: Numbers, found: list[np.ndarray]) -> None:
    x, v, k, tau = (part.astype(np.float64) for part in given)
    y, mu, to_x, to_k, to_tau = (part.astype(np.float64) for part in found)
    single = given.x.dtype == np.float32
    eps, rate = float(np.finfo(given.x.dtype).eps), tau[:, None]
    size = np.maximum(1, np.abs(np.where(np.isfinite(x), x, 0)) / rate)
    name = CURVES[curve]
    near(f"{name} by its threshold", y, rise(curve, (x - mu[:, None]) / rate), (4e-7 if single else 1e-12) * size)
    near(f"sum of {name}", y.sum(1), k, 4 * eps * np.maximum(k, 1) + (0 if single else 1e-15 * x.shape[1]))
    grad, mean, slope, weight = pull_back(curve, y, v, tau)
    sizes = np.abs(np.where(np.isfinite(v), v, 0)).max(initial=0)
    near(f"gradient of {name}", to_x, grad, 16 * eps * sizes / rate)
    # Slopes that the dtype hardly holds have no digits left, and neither has a mean that they weight.
    sure = (weight == 0) | ~(weight < eps**4)
    near(f"gradient of {name} to k", np.where(sure, to_k, mean), mean, 16 * eps * sizes)
    near(f"gradient of {name} to tau", to_tau, slope, 16 * eps * sizes * (x.shape[1] + 1) / tau)


def check(problem: Problem, given: Numbers) -> None:
    """Right on one thread, and the same bits on several."""
    for curve in SMOOTH:
        first: list[np.ndarray] = []
        for threads in THREADS:
            found = solve(problem, given, curve, threads)
            if not first:
                check_solution(curve, given, found)
                first = found
            for got, right in zip(found, first, strict=True):
                assert np.array_equal(got, right), f"{CURVES[curve]} differs with {threads} threads"


def solve_rows(curve: int, x: np.ndarray, k: float, tau: float) -> tuple[np.ndarray, np.ndarray]:
    y, mu = np.empty_like(x), np.empty(len(x))
    assert _kernel.project(x, k, tau, y=y, mu=mu, curve=curve) is None
    return y, mu


def as_numbers(x: np.ndarray, k: float, tau: float) -> Numbers:
    v = np.random.default_rng(0).normal(size=x.shape).astype(x.dtype)
    return Numbers(x, v, np.full(len(x), k), np.full(len(x), tau))
