"""Whether the kernels may serve a device: their first use there is compared with plain torch.

No machine of the project has a GPU, so a device gets to show what its kernels do before anyone relies on them. Where
they differ from plain torch, or do not compile, plain torch serves that device from then on.
"""

import functools
import hashlib
import importlib.metadata
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch._boundary import computed, is_captured
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends.triton import _backend

_trusted: dict[tuple[torch.device, torch.dtype, str], bool] = {}
_distrusted: set[tuple[torch.device, str]] = set()
_lock = threading.Lock()


@functools.cache
def version() -> str:
    """Of the kernels: a digest of their sources."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def passes(x: Tensor) -> bool:
    """Whether the kernels serve x's device and dtype; the first call for either runs the comparison."""
    device, dtype = x.device, x.dtype
    if (device, version()) in _distrusted:
        return False
    if (device, dtype, version()) in _trusted:
        return True
    if torch.compiler.is_compiling() or is_captured(x):
        return False  # nothing can be compared now; a use outside of the capture does it
    with _lock:
        if (device, version()) not in _distrusted and (device, dtype, version()) not in _trusted:
            _decide(device, dtype)
        return (device, version()) not in _distrusted


def _decide(device: torch.device, dtype: torch.dtype) -> None:
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        found = next(differences(device, dtype), None)
    if found is None:
        _trusted[device, dtype, version()] = True
        return
    _distrusted.add((device, version()))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    warnings.warn(
        f"hypersimplex uses plain torch operations on {device}, because its Triton kernels gave a different result "
        f"there: {found}. Please report this as an issue of hypersimplex, with this line: {name}, "
        f"kernels {version()}, torch {torch.__version__}, triton {importlib.metadata.version('triton')}.",
        RuntimeWarning,
        stacklevel=2,
    )


class Problem(NamedTuple):
    name: str
    x: Tensor
    v: Tensor
    k: Tensor
    tau: Tensor
    dim: int


def _spread(*shape: int, seed: int) -> Tensor:
    """Numbers between -2 and 2 without a pattern that matters; the random state of the process is left alone."""
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64, device="cpu").reshape(shape)
    return 4 * torch.frac(torch.sin(i * 12.9898 + seed).abs() * 43758.5453) - 2


def _problem(name: str, slices: int, n: int, dim: int) -> Problem:
    """Slices of every kind in turn: plain, ties, masks, +inf, more +inf than k, far apart, all equal, NaN."""
    x, kind = _spread(slices, n, seed=1), torch.arange(slices, device="cpu") % 8
    k = torch.full((slices,), 0.3 * n + 0.25, dtype=torch.float64, device="cpu")
    x[kind == 1] = x[kind == 1].round()
    x[kind == 2, ::3] = -torch.inf
    x[kind == 3, 1 : max(2, n // 8)] = torch.inf
    x[kind == 4, : n // 2] = torch.inf
    x[kind == 5] *= 1000
    k[kind == 5] = n // 3
    x[kind == 6] = 0.75
    x[kind == 7, n - 1] = torch.nan
    tau = 0.5 + kind.to(torch.float64) / 4
    v = _spread(slices, n, seed=2)
    return Problem(name, *((x.T, v.T) if dim == 0 else (x, v)), k, tau, dim)


def problems() -> Iterator[Problem]:
    """One for each way that `_backend.plan` knows."""
    tile = _backend.TILE
    yield _problem("short rows", 10, _backend.LEAST // 8 - 3, 1)
    yield _problem("rows of one tile", 2, tile, 1)
    yield _problem("long rows", 2, 2 * tile + 3, 1)
    yield _problem("short columns", 10, tile // 16 - 1, 0)
    yield _problem("long columns", 10, tile // 4 + 3, 0)


def differences(device: torch.device, dtype: torch.dtype) -> Iterator[str]:
    """What differs, in words; nothing if all is well."""
    for p in problems():
        x, v = p.x.to(device, dtype), p.v.to(device, dtype)
        k, tau = p.k.to(device), p.tau.to(device)
        y, mu = plain.project(x, k, tau, p.dim)
        yield from _compare(p.name, ("y", "mu"), (y, mu), dtype, _backend.project, x, k, tau, p.dim)
        want = plain.pullback(y, v, tau, p.dim)
        names = ("gradient to x", "gradient to k", "gradient to tau")
        yield from _compare(p.name, names, want, dtype, _backend.pullback, y, v, tau, p.dim)
    for name, samples in (("short", _backend.TILE // 16 - 1), ("long", _backend.TILE // 4 + 3)):
        for batch in _batches(samples, device, dtype):
            kind = "dense targets" if batch.dense else "labels"
            settings = Settings(None, -100, "mean", None, None, 0.5)
            names, want = ("value", "gradient", "mu and k"), _loss(plain, batch, settings)
            yield from _compare(f"{name} loss with {kind}", names, want, dtype, _loss, _backend, batch, settings)


def _batches(samples: int, device: torch.device, dtype: torch.dtype) -> Iterator[Batch]:
    x = _spread(samples, 5, seed=3).to(device, dtype)
    labels = (torch.arange(samples, device=device) * 7 + 3) % 4  # class 4 is absent
    dense = (_spread(samples, 5, seed=4).to(device, dtype) + 2) / 4
    yield Batch(x, torch.where(labels * 5 % 11 == 4, -100, labels), False, (samples,))
    yield Batch(x, dense, True, (samples,))


def _loss(backend: Any, batch: Batch, settings: Settings) -> tuple[Any, ...]:
    outcome = backend.loss(batch, settings, True)
    return outcome.loss, outcome.gradient, outcome.mu_and_k


def _compare(
    problem: str, names: tuple[str, ...], want: tuple[Any, ...], dtype: torch.dtype, function: Any, *args: Any
) -> Iterator[str]:
    where = f"{problem} in {str(dtype).removeprefix('torch.')}"
    try:
        got = function(*args)
        worst = [_difference(g, w) for g, w in zip(got, want, strict=True)]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler or a launch may raise
        yield f"{where}: {type(error).__name__}: {str(error)[:500]}"
        return
    for name, w, size in zip(names, want, worst, strict=True):
        # Entries differ by rounding; sums over a slice by the rounding of many.
        eps = 4 * torch.finfo(dtype).eps + 256 * torch.finfo(computed(dtype)).eps
        finite = w[w.isfinite()]
        limit = eps * max(1.0, float(finite.abs().max()) if finite.numel() else 0.0)
        if not size <= limit:
            yield f"{where}: {name} by {size:.3g}, where {limit:.1g} is rounding"


def _difference(got: Tensor, want: Tensor) -> float:
    """The largest; infinite where one is NaN or infinite and the other is not."""
    if got.shape != want.shape:
        return torch.inf
    got, want = got.double(), want.double()
    same = (got == want) | (got.isnan() & want.isnan())
    size = torch.where(same, 0.0, (got - want).abs())
    return float(torch.nan_to_num(size, nan=torch.inf).max()) if size.numel() else 0.0
