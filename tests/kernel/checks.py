"""One problem through the operator and the loss, on one thread and on several, against the exact answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

import hypersimplex.torch as hst
from tests.kernel import exact
from tests.kernel.shapes import Problem

THREADS = (1, 2, 3)
FEW = (1, 2, 3, 7)


class Numbers(NamedTuple):
    x: np.ndarray  # (slices, n)
    v: np.ndarray
    k: np.ndarray  # (slices,)
    tau: np.ndarray


def numbers(problem: Problem) -> Numbers:
    """The slices as rows. Masks leave k entries, and fewer than k are certain."""
    rng, n, slices = np.random.default_rng(problem.seed), problem.n, problem.slices
    if problem.layout in ("middle", "permuted"):
        slices *= 2
    x, v = rng.normal(size=(2, slices, n)).astype(problem.dtype)
    if problem.values == "ties":
        x = np.round(4 * x) / 4
    elif problem.values == "offset":
        x = x + x.dtype.type(50)
    share, tau = rng.uniform(0.02, 0.6, slices), 10 ** rng.uniform(-1.5, 1, slices)
    if not problem.apart:
        share, tau = np.full(slices, share[0]), np.full(slices, tau[0])
    k = share * n if rng.random() < 0.5 else np.round(share * n)
    if problem.values == "masked":
        free = (
            rng.permuted(np.tile(np.arange(n), (slices, 1)), axis=1)
            if n * slices < 20_000
            else np.tile(rng.permutation(n), (slices, 1))
        )
        x[free >= np.ceil(k)[:, None] + rng.integers(1, n + 1)] = -np.inf
        x[free < np.floor(k / 8)[:, None]] = np.inf
    return Numbers(x, v, k, tau)


def laid_out(rows: np.ndarray, layout: str) -> tuple[torch.Tensor, int]:
    """The rows as a tensor whose slices lie in memory as the layout says, and their dim."""
    t = torch.from_numpy(np.ascontiguousarray(rows))
    slices, n = t.shape
    if layout == "first":
        return t.T.contiguous(), 0
    if layout == "transposed":
        return t.T.contiguous().T, 1
    if layout == "strided":
        wide = torch.zeros(slices, 2 * n, dtype=t.dtype)
        wide[:, ::2] = t
        return wide[:, ::2], -1
    halves = t.view(2, slices // 2, n) if layout in ("middle", "permuted") else None
    if layout == "middle":
        return halves.transpose(1, 2).contiguous(), 1
    if layout == "permuted":  # (2, n, slices/2), but the first dim is the one without gaps
        return halves.permute(1, 2, 0).contiguous().permute(2, 1, 0), 1
    return t, -1


def as_rows(t: torch.Tensor, dim: int, slices: int) -> np.ndarray:
    return t.detach().movedim(dim, -1).reshape(slices, -1).numpy()


def over_slices(values: np.ndarray, x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.from_numpy(values).view(x.movedim(dim, -1).shape[:-1])


def operate(problem: Problem, given: Numbers) -> list[np.ndarray]:
    """y, mu, the gradients, and the k largest."""
    x, dim = laid_out(given.x, problem.layout)
    v = laid_out(given.v, problem.layout)[0]
    slices = len(given.x)
    k, tau = (over_slices(values, x, dim) for values in (given.k, given.tau))
    whole: torch.Tensor | float = k.floor()
    if problem.apart:
        wanted = [x.requires_grad_(), k.requires_grad_(), tau.requires_grad_()]
    else:
        k, tau, whole = float(given.k[0]), float(given.tau[0]), float(np.floor(given.k[0]))
        wanted = [x.requires_grad_()]
    y = hst.soft_binary_argmax(x, k, tau, dim)
    gradients = torch.autograd.grad(y, wanted, v)
    with torch.no_grad():
        mu, top = hst.threshold(x, k, tau, dim), hst.binary_argmax(x, whole, dim)
    flat = [g.reshape(-1).numpy() for g in (mu, *gradients[1:])]
    return [as_rows(y, dim, slices), as_rows(top, dim, slices), as_rows(gradients[0], dim, slices), *flat]


def check_operator(problem: Problem, given: Numbers, found: list[np.ndarray]) -> None:
    x, v, k, tau = given
    y, top, to_x, mu, *rest = (part.astype(np.float64) for part in found)
    eps, sizes = float(np.finfo(problem.dtype).eps), np.abs(np.where(np.isfinite(v), v, 0)).max()
    right, exact_mu = exact.project(x, k, tau)
    digits = 2 * eps + 2 * np.finfo(np.float64).eps * (np.abs(exact_mu) / tau + k)
    near("y", y, right, digits[:, None])
    near("threshold", mu, exact_mu, 2 * eps * np.abs(exact_mu) + 4 * tau * digits)
    if not np.array_equal(top, exact.largest(x, np.floor(k))):
        raise AssertionError("binary_argmax is not the k largest")
    # The gradient belongs to the y that the kernel made: an entry within rounding of 0 or 1 is on either side of it.
    grad, to_k, to_tau = exact.pull_back(y, v.astype(np.float64), tau)
    near("gradient", to_x, grad, 16 * eps * sizes / tau[:, None])
    if rest:
        active = ((y > 0) & (y < 1)).sum(1)
        near("gradient to k", rest[0], to_k, 16 * eps * sizes)
        near("gradient to tau", rest[1], to_tau, 16 * eps * sizes * (active + 1) / tau)


def near(name: str, got: np.ndarray, right: np.ndarray, atol: np.ndarray | float) -> None:
    off = ~(np.abs(got - right) <= atol)
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        raise AssertionError(
            f"{name}: {off.sum()} of {off.size} are wrong, the first at {at}: {got[at]!r}, not {right[at]!r}"
        )


class Loss(NamedTuple):
    logits: torch.Tensor  # (N, C) or (N, C, d)
    target: torch.Tensor
    settings: dict[str, torch.Tensor | float]
    rows: tuple[np.ndarray, ...]  # x, targets, k, tau, weight, and which samples are kept


def as_logits(rows: np.ndarray, layout: str) -> torch.Tensor:
    """The rows, a class each, as (N, C) logits, or with the samples of a middle layout as (N/2, C, 2)."""
    t = torch.from_numpy(np.ascontiguousarray(rows))
    classes, n = t.shape
    if layout == "last":
        return t.T
    if layout == "strided":
        return torch.stack([t.T, t.T], 2)[..., 0]
    if layout == "middle" and n % 2 == 0:
        return t.view(classes, n // 2, 2).transpose(0, 1).contiguous()
    return t.T.contiguous()


def logit_rows(logits: torch.Tensor) -> np.ndarray:
    return logits.transpose(0, 1).reshape(logits.shape[1], -1).numpy()


def loss_problem(problem: Problem, given: Numbers) -> Loss:
    """The slices are the classes. Labels, of which some are ignored, or dense targets."""
    rng = np.random.default_rng(problem.seed + 1)
    x = np.clip(given.x, -1e4, 1e4)
    classes, n = x.shape
    logits = as_logits(x, problem.layout)
    weight, tau = rng.uniform(0.5, 2, classes), given.tau
    settings: dict[str, torch.Tensor | float] = {"weight": torch.from_numpy(weight), "tau": torch.from_numpy(tau)}
    if not problem.apart:
        weight, settings = np.ones(classes), {"tau": float(tau[0])}
    kept = np.ones(n, bool)
    if problem.layout == "transposed":
        dense = rng.random((classes, n)).astype(problem.dtype)
        target, targets = as_logits(dense, problem.layout), dense.astype(np.float64)
    else:
        labels = rng.integers(classes, size=n)
        if problem.layout == "permuted":
            kept = rng.random(n) < 0.8
        target = torch.from_numpy(np.where(kept, labels, -100)).view(logits.shape[0], *logits.shape[2:])
        targets = (labels == np.arange(classes)[:, None]).astype(np.float64)
    k = targets[:, kept].sum(1)
    return Loss(logits, target, settings, (x[:, kept], targets[:, kept], k, tau, weight, kept))


def lose(problem: Loss) -> list[np.ndarray]:
    logits = problem.logits.detach().requires_grad_()
    loss = hst.hypersimplex_loss(logits, problem.target, reduction="sum", **problem.settings)
    (grad,) = torch.autograd.grad(loss, logits)
    return [loss.detach().numpy(), logit_rows(grad)]


def check_loss(problem: Loss, found: list[np.ndarray]) -> None:
    x, targets, k, tau, weight, kept = problem.rows
    loss, grad, place = exact.loss(x.astype(np.float64), targets, k, tau, weight)
    p = np.clip(place, 0, 1)
    eps = float(np.finfo(x.dtype).eps)
    # Every projection is rounded where it lies in units of tau, and the sum of squares adds that up.
    digits = eps * (1 + np.where(np.isfinite(x), np.abs(x), 0).max(initial=1) / tau)
    rounding = float((weight * digits * np.abs(p - targets).sum(1)).sum())
    near("loss", found[0].astype(np.float64), np.asarray(loss), 64 * eps * loss + eps + rounding)
    got = found[1].astype(np.float64)
    if got[:, ~kept].any():
        raise AssertionError("an ignored sample has a gradient")
    # Entries within rounding of 0 or 1 may be active or not: they are left out, and count in the mean of the others.
    edge = 64 * eps * (1 + np.abs(x).max(initial=1) / tau)[:, None]
    sure = (np.abs(place) > edge) & (np.abs(place - 1) > edge)
    number = ((p > 0) & (p < 1)).sum(1)
    doubt = (~sure).sum(1) / np.maximum(number, 1)
    sums = np.finfo(np.float64).eps * number / 64  # equal numbers round to the same side
    atol = (weight / tau * (32 * eps * (1 + np.abs(x).max(initial=1) / tau) + doubt + sums))[:, None]
    near("gradient of the loss", np.where(sure, got[:, kept], 0), np.where(sure, grad, 0), atol)


def check(problem: Problem) -> list[np.ndarray]:
    """Right on one thread, the same bits on several, and for a row whatever its neighbors; the results."""
    given = numbers(problem)
    loss = loss_problem(problem, given)
    first: list[np.ndarray] = []
    before = torch.get_num_threads()
    try:
        for threads in THREADS:
            torch.set_num_threads(threads)
            found = operate(problem, given) + lose(loss)
            if not first:
                check_operator(problem, given, found[:-2])
                check_loss(loss, found[-2:])
                check_few(problem, given, found)
                first = found
            same_bits(f"{threads} threads", found, first)
    finally:
        torch.set_num_threads(before)
    return first


def check_few(problem: Problem, given: Numbers, found: list[np.ndarray]) -> None:
    """A row's results do not depend on how many rows are solved with it. A column's may, in the last bit."""
    rows, loss = found[:-2], found[-2:]
    for few in FEW if problem.layout in ("last", "strided") else ():
        if few < problem.slices:
            again = operate(problem, Numbers(*(part[:few] for part in given)))
            same_bits(f"only {few} of the rows", again + loss, [part[:few] for part in rows] + loss)


def same_bits(when: str, found: list[np.ndarray], first: list[np.ndarray]) -> None:
    names = ["y", "binary_argmax", "gradient", "threshold", "gradient to k", "gradient to tau"][: len(first) - 2]
    for name, got, right in zip([*names, "loss", "gradient of the loss"], found, first, strict=True):
        differ = (got != right) & ~(np.isnan(got) & np.isnan(right))
        if differ.any():
            raise AssertionError(f"{name} differs in {differ.sum()} of {differ.size} with {when}")
