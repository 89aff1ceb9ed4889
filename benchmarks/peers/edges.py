"""The table of edges: what every front end of this library promises at the rim, asked of every peer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.peers import OTHER, PROJECTION, Function, Peer
from benchmarks.peers.steps import array, dtype_name, steps
from hypersimplex import reference

RIGHT, NO_ERROR, SKIPPED = "right", "no error", "-"
INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Edge:
    name: str
    x: Callable[[], Tensor]
    k: float
    fails: bool = False  # an error is what the table asks for
    or_nan: bool = False  # and NaN will do as well
    fixed: dict[tuple[int, int], float] = field(default_factory=dict)  # what every soft top-k must give
    tolerance: float = 1e-4
    gradient: bool = True  # compare its values; in half precision an entry may fall on the other side of a kink


def _tensor(*rows: list[float], dtype: torch.dtype = torch.float32) -> Callable[[], Tensor]:
    return lambda: torch.tensor(rows, dtype=dtype)


def _random(rows: int, n: int, shift: float = 0.0, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn((rows, n), generator=torch.Generator().manual_seed(1)) + shift).to(dtype)


ROW = [0.1, 1.6, 1.0, -0.3, 0.7]
EDGES = [
    Edge("k = 0", _tensor(ROW), 0, fixed={(0, i): 0.0 for i in range(5)}),
    Edge("k = n", _tensor(ROW), 5, fixed={(0, i): 1.0 for i in range(5)}),
    Edge("k = 1.7", _tensor(ROW), 1.7),
    Edge("k < 0", _tensor(ROW), -1, fails=True),
    Edge("k > n", _tensor(ROW), 6, fails=True),
    Edge("all entries equal", _tensor([2.0] * 5), 2, fixed={(0, i): 0.4 for i in range(5)}),
    Edge("-inf as a mask", _tensor([0.1, -INF, 1.0, -INF, 0.7]), 2, fixed={(0, 1): 0.0, (0, 3): 0.0}),
    Edge("+inf", _tensor([0.1, INF, 1.0, -0.3, 0.7]), 2, fixed={(0, 1): 1.0}),
    Edge("more +inf than k", _tensor([INF, INF, 1.0, INF, 0.7]), 2, fixed={(0, i): 2 / 3 for i in (0, 1, 3)}),
    Edge("k above the entries not masked", _tensor([0.1, -INF, -INF, -INF, 0.7]), 3, fails=True, or_nan=True),
    Edge("NaN in one row of two", _tensor([0.1, NAN, 1.0, -0.3, 0.7], ROW), 2),
    Edge("every y 0 or 1", _tensor([9.0, -9.0, 7.0, -8.0, -6.0]), 2),
    Edge("the same with ties", _tensor([9.0, -9.0, 9.0, -9.0, -9.0]), 2),
    Edge("x near 10^4", lambda: _random(3, 1000, 1e4), 100, tolerance=1e-3),
    Edge("x of 10^30", _tensor([1e30, -1e30, 3.0, 1e30, 2.5]), 3, fixed={(0, 0): 1.0, (0, 1): 0.0, (0, 3): 1.0}),
    Edge("float16", lambda: _random(3, 100, dtype=torch.float16), 10, tolerance=2e-3, gradient=False),
    Edge("bfloat16", lambda: _random(3, 100, dtype=torch.bfloat16), 10, tolerance=1e-2, gradient=False),
    Edge("float64", lambda: _random(3, 100, dtype=torch.float64), 10, tolerance=1e-6),
    Edge("whole-number x", _tensor([3.0, 1.0, 2.0, 5.0, 4.0], dtype=torch.int64), 2, fails=True),
    Edge("strided x", lambda: _random(3, 100)[:, ::3], 4),
    Edge("no rows", lambda: torch.zeros((0, 5)), 2),
    Edge("no columns, k = 1", lambda: torch.zeros((2, 0)), 1, fails=True),
]


def find(name: str) -> Edge:
    return next(edge for edge in EDGES if edge.name == name)


def asked(edge: Edge, peer: Peer) -> bool:
    """Not of what is no top-k, nor about k of what has none, nor of JAX what JAX itself decides."""
    if peer.kind == OTHER or (peer.only_k_one and edge.name.startswith("k ")):
        return False
    return not (peer.jax and edge.name == "float64")


def outcome(edge: Edge, peer: Peer, function: Function) -> str:
    """`right`, or in a word or two what happened instead."""
    if not asked(edge, peer):
        return SKIPPED
    edge = replace(edge, k=1) if peer.only_k_one else edge
    x = edge.x()
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    try:
        made = steps(peer, function, x, v.to(x.dtype) if x.is_floating_point() else v, edge.k)
        y, gradient = made.both() if x.is_floating_point() else (made.forward(), None)
    except Exception:  # whatever a peer raises is the observation
        return RIGHT if edge.fails else "error"
    values = array(y)
    if edge.fails:
        return _accepted(edge, peer, x, values)
    if values.shape != tuple(x.shape):
        return "wrong shape"
    word = _judge_values(edge, peer, array(x), values)
    if word == RIGHT and gradient is not None:
        word = _judge_gradient(edge, peer, array(x), array(gradient), v.to(x.dtype).double().numpy())
    if word == RIGHT and dtype_name(y) != dtype_name(x):
        word = f"{RIGHT}, as float64" if dtype_name(y) == "float64" else f"gives {dtype_name(y)}"
    return word


def _accepted(edge: Edge, peer: Peer, x: Tensor, values: np.ndarray[Any, Any]) -> str:
    """No error where the table asks for one. Whole numbers computed as if they were floats do no harm."""
    if edge.or_nan and np.isnan(values).all():
        return RIGHT
    if not x.is_floating_point():
        word = _judge_values(edge, peer, array(x), values)
        return f"{RIGHT}, as float" if word == RIGHT else word
    return NO_ERROR


def _judge_values(edge: Edge, peer: Peer, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> str:
    bad = np.isnan(x).any(-1)
    if np.isnan(y[~bad]).any():
        return "NaN"
    if bad.any() and not np.isnan(y[bad]).all():
        return "hides the NaN"
    rows = y[~bad]
    if peer.kind == PROJECTION:
        good = _close(rows, reference.soft_binary_argmax(x[~bad], edge.k), edge.tolerance)
    else:
        good = _close(rows.sum(-1), np.full(len(rows), edge.k), 0.01 * max(1, edge.k)) and bool((rows > -1e-3).all())
        good = good and all(abs(y[i] - value) < 0.01 for i, value in edge.fixed.items())
    return RIGHT if good else "wrong value"


def _judge_gradient(
    edge: Edge, peer: Peer, x: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any], v: np.ndarray[Any, Any]
) -> str:
    fine = ~np.isnan(x).any(-1)
    if not np.isfinite(gradient[fine]).all():
        return "NaN gradient"
    if peer.kind == PROJECTION and edge.gradient:
        expected = reference.vjp(reference.soft_binary_argmax(x[fine], edge.k), v[fine])[0]
        if not _close(gradient[fine], expected, max(1e-3, edge.tolerance)):
            return "wrong gradient"
    return RIGHT


def _close(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float) -> bool:
    return bool(np.allclose(a, b, rtol=0, atol=tolerance))
