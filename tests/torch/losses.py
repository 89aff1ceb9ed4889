"""The HyperSimplex loss written out in float64, and the ways the library computes it."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from hypersimplex.torch import _own_loss, backends

DOUBLE = torch.float64
PATHS = ("fused", "composed", "plain")
every_path = pytest.mark.parametrize("path", PATHS)


@contextlib.contextmanager
def using(path: str) -> Iterator[None]:
    """The fused kernel; the operator and torch operations; torch operations alone."""
    with pytest.MonkeyPatch.context() as patch, backends.plain_only() if path == "plain" else contextlib.nullcontext():
        if path == "composed":
            patch.setattr(_own_loss, "_in_one_call", lambda *_: False)
        yield


def project(x: Tensor, k: float, tau: float) -> Tensor:
    """clip((x - mu)/tau, 0, 1) with sum k: mu by bisection, then exactly from the entries strictly between 0 and 1."""
    low, high = x.min() - 2 * tau, x.max() + tau
    for _ in range(80):
        mu = (low + high) / 2
        low, high = (mu, high) if ((x - mu) / tau).clip(0, 1).sum() > k else (low, mu)
    y = ((x - mu) / tau).clip(0, 1)
    active = (y > 1e-9) & (y < 1 - 1e-9)
    if active.any():
        mu = x[active].mean() - tau * (k - int((y >= 1 - 1e-9).sum())) / int(active.sum())
    return ((x - mu) / tau).clip(0, 1)


def formula(
    columns: Tensor,
    targets: Tensor,
    *,
    k: Tensor | None = None,
    tau: float | Tensor = 1.0,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss of every sample, and the gradient of their sum, for (N, C) logits and (N, C) numbers from 0 to 1.

    p is the projection of a column and e = p - target: the loss is the sum over classes of weight e^2/2, and with
    A = {0 < p < 1} the gradient is weight (e - mean_A e)/tau on A, 0 elsewhere.
    """
    columns, targets = columns.detach().to(DOUBLE), targets.to(DOUBLE)
    classes = columns.shape[1]
    k = targets.sum(0) if k is None else torch.as_tensor(k, dtype=DOUBLE).expand(classes)
    taus = torch.as_tensor(tau, dtype=DOUBLE).detach().expand(classes)
    weights = torch.ones(classes, dtype=DOUBLE) if weight is None else weight.to(DOUBLE).expand(classes)
    each, grad = torch.zeros(len(columns), dtype=DOUBLE), torch.zeros_like(columns)
    for c in range(classes):
        p = project(columns[:, c], float(k[c]), float(taus[c]))
        error = p - targets[:, c]
        each += weights[c] * error**2 / 2
        active = (p > 0) & (p < 1)
        if active.any():
            grad[active, c] = weights[c] * (error[active] - error[active].mean()) / taus[c]
    return each, grad


def one_hot(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).to(DOUBLE)


def normal(*shape: int, dtype: torch.dtype = DOUBLE, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def leaf(*shape: int, dtype: torch.dtype = DOUBLE, seed: int = 0) -> Tensor:
    """Logits whose loss can be differentiated: others do not move thresholds."""
    return normal(*shape, dtype=dtype, seed=seed).requires_grad_()


def labels_of(*shape: int, classes: int, seed: int = 1) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(seed))


def same(got: Tensor, expected: Tensor, **kwargs: float) -> None:
    assert expected.abs().max() > 1e-3, "an expected zero proves nothing"
    torch.testing.assert_close(got, expected, **kwargs)
