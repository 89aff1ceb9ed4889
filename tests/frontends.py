"""Every front end behind one face: NumPy arrays in, NumPy arrays out. One suite runs over all of them.

Torch and JAX take part where they are installed: not every platform that has a wheel of ours has one of theirs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hypersimplex as hs
from hypersimplex import reference

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:
    import torch

    import hypersimplex.torch as hst
    from hypersimplex.torch import backends

FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
DTYPES = (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)


@dataclass(frozen=True, repr=False)
class FrontEnd:
    """Three functions with the NumPy signatures, and what is particular to this front end."""

    name: str
    soft_binary_argmax: Callable[..., np.ndarray]
    threshold: Callable[..., np.ndarray]
    binary_argmax: Callable[..., np.ndarray]
    dtypes: tuple[np.dtype, ...] = DTYPES
    input_word: str = "x"
    axis_word: str = "axis"
    box_section: Callable[..., np.ndarray] | None = None
    soft_topk_segments: Callable[..., np.ndarray] | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def soft_topk(self) -> Callable[..., np.ndarray]:
        """The operator under its other name."""
        return self.soft_binary_argmax


def to_torch(a: np.ndarray) -> torch.Tensor:
    """The same memory as a tensor, whatever its strides; torch has no negative ones, so those are copied."""
    if any(stride < 0 for stride in a.strides):
        a = a.copy()
    with warnings.catch_warnings():
        # Read-only and broadcast arrays arrive here on purpose; nothing writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        if a.dtype == BFLOAT16:
            return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(a)


def to_numpy(t: torch.Tensor) -> np.ndarray:
    if t.dtype == torch.bfloat16:
        return t.view(torch.int16).numpy().view(BFLOAT16)
    return t.numpy()


def _through_torch(function: Callable[..., torch.Tensor], plain: bool) -> Callable[..., np.ndarray]:
    def call(x: np.ndarray, *args: Any, axis: int = -1, **kwargs: Any) -> np.ndarray:
        args = tuple(to_torch(a) if isinstance(a, np.ndarray) else a for a in args)
        kwargs = {name: to_torch(a) if isinstance(a, np.ndarray) else a for name, a in kwargs.items()}
        with backends.plain_only() if plain else contextlib.nullcontext():
            return to_numpy(function(to_torch(x), *args, dim=axis, **kwargs))

    return call


def _torch_front_end(name: str, plain: bool) -> FrontEnd:
    functions = (hst.soft_binary_argmax, hst.threshold, hst.binary_argmax)
    words = {"input_word": "input", "axis_word": "dim"}

    def segments(x: np.ndarray, k: Any, offsets: Any, tau: Any = 1.0, **kwargs: Any) -> np.ndarray:
        k, tau = (to_torch(v) if isinstance(v, np.ndarray) else v for v in (k, tau))
        with backends.plain_only() if plain else contextlib.nullcontext():
            return to_numpy(hst.soft_topk_segments(to_torch(x), k, torch.as_tensor(offsets), tau, **kwargs))

    box = _through_torch(hst.box_section, plain)
    return FrontEnd(
        name, *(_through_torch(f, plain) for f in functions), **words, box_section=box, soft_topk_segments=segments
    )


def _jax_front_ends() -> tuple[FrontEnd, ...]:
    """JAX in its usual 32 bits, and with 64: where it is installed, which is an environment of its own."""
    if importlib.util.find_spec("jax") is None:
        return ()
    import jax

    import hypersimplex.jax as hsj

    def through_jax(function: Callable[..., Any], x64: bool) -> Callable[..., np.ndarray]:
        def call(x: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
            with jax.enable_x64(x64):
                return np.asarray(function(x, *args, **kwargs))

        return call

    functions = (hsj.soft_binary_argmax, hsj.threshold, hsj.binary_argmax)

    def front_end(name: str, x64: bool, dtypes: tuple[np.dtype, ...]) -> FrontEnd:
        budgets = {f.__name__: through_jax(f, x64) for f in (hsj.box_section, hsj.soft_topk_segments)}
        return FrontEnd(name, *(through_jax(f, x64) for f in functions), dtypes=dtypes, **budgets)

    return front_end("jax", False, (FLOAT16, BFLOAT16, FLOAT32)), front_end("jax-x64", True, (FLOAT64,))


NUMPY = FrontEnd(
    "numpy",
    hs.soft_binary_argmax,
    hs.threshold,
    hs.binary_argmax,
    box_section=hs.box_section,
    soft_topk_segments=hs.soft_topk_segments,
)
if HAS_TORCH:
    TORCH = _torch_front_end("torch", plain=False)
    PLAIN = _torch_front_end("torch-plain", plain=True)
REFERENCE = FrontEnd(
    "reference", reference.soft_binary_argmax, reference.threshold, reference.binary_argmax, dtypes=(FLOAT64,)
)

FRONT_ENDS = (NUMPY, *((TORCH, PLAIN) if HAS_TORCH else ()), *_jax_front_ends())

every_front_end = pytest.mark.parametrize("fe", FRONT_ENDS, ids=lambda fe: fe.name)


def every_front_end_and_dtype(
    dtypes: tuple[np.dtype, ...] = DTYPES, front_ends: tuple[FrontEnd, ...] = FRONT_ENDS
) -> pytest.MarkDecorator:
    """Parametrise a test over (fe, dtype) for each dtype that the front end serves."""
    pairs = [(fe, dtype) for fe in front_ends for dtype in dtypes if dtype in fe.dtypes]
    return pytest.mark.parametrize(("fe", "dtype"), pairs, ids=[f"{fe.name}-{dtype}" for fe, dtype in pairs])


def eps(dtype: np.dtype) -> float:
    """The distance from 1 to the next number of the dtype."""
    return float(ml_dtypes.finfo(dtype).eps)


def tolerance(dtype: np.dtype, mu: Any = 0.0, tau: Any = 1.0, k: Any = 0.0) -> Any:
    """How far y may be from the exact solution for the same input.

    y is at most 1, so rounding the result costs eps/4 and the subtraction and division before it
    as much each: 2 eps leaves room for nothing but rounding. mu and k are one float64 number each:
    the rounding of mu is divided by tau, that of k may fall on a single active entry.
    """
    size = np.abs(np.nan_to_num(mu, posinf=0.0)) / np.asarray(tau, np.float64) + np.asarray(k, np.float64)
    return 2 * eps(dtype) + 2 * float(np.finfo(np.float64).eps) * size
