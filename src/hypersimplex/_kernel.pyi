"""
The compiled kernel of hypersimplex. Private: call hypersimplex or hypersimplex.torch instead.
"""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

def variant() -> str:
    """The SIMD variant in use."""

def constants() -> dict[str, int]:
    """The sizes at which the kernel changes its way of working."""

def xla_handlers() -> dict[str, object]:
    """What jax.ffi.register_ffi_target takes, by name."""

def xla_compatible() -> bool:
    """Whether the XLA at which the handlers were registered can call them."""

def lies_evenly(shape: Sequence[int], strides: Sequence[int], axis: int) -> bool:
    """Whether the other functions take an array that lies so."""

def project(
    x: NDArray[Any],
    k: float,
    tau: float,
    y: NDArray[Any] | None = None,
    mu: NDArray[Any] | None = None,
    ks: NDArray[Any] | None = None,
    taus: NDArray[Any] | None = None,
    axis: int = -1,
    threads: int = 1,
    curve: int = 0,
) -> tuple[str, int, int] | None:
    """
    Write the projection into y and the thresholds into mu; None, or (what, slice, limit) if a slice failed.
    """

def backward(
    y: NDArray[Any],
    v: NDArray[Any],
    tau: float,
    grad: NDArray[Any] | None = None,
    grad_k: NDArray[Any] | None = None,
    grad_tau: NDArray[Any] | None = None,
    taus: NDArray[Any] | None = None,
    axis: int = -1,
    threads: int = 1,
    curve: int = 0,
) -> tuple[str, int, int] | None:
    """Write the gradients of sum(v * y) to x, k and tau."""

def binary(
    x: NDArray[Any], k: float, y: NDArray[Any], ks: NDArray[Any] | None = None, axis: int = -1, threads: int = 1
) -> tuple[str, int, int] | None:
    """Write exactly k ones into every slice of y."""

def at_thresholds(
    x: NDArray[Any],
    labels: NDArray[Any] | None,
    dense: NDArray[Any] | None,
    ignored: int,
    mu: NDArray[Any],
    low: NDArray[Any],
    tau: NDArray[Any],
    mean: NDArray[Any] | None = None,
    factor: NDArray[Any] | None = None,
    sums: NDArray[Any] | None = None,
    grad: NDArray[Any] | None = None,
    threads: int = 1,
) -> tuple[str, int, int] | None:
    """
    One rank's sums of every class at the thresholds mu + low, or its gradient there.
    """

def box(
    x: NDArray[Any],
    y: NDArray[Any],
    mu: NDArray[Any],
    total: NDArray[Any],
    tau: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    weight: NDArray[Any],
    at_most: bool = False,
    threads: int = 1,
) -> tuple[str, int, int] | None:
    """
    Write the nearest points within bounds and on a budget into the rows of y; None, or what failed.
    """

def box_at(
    is_double: bool,
    sizes: Sequence[int],
    x: int,
    y: int,
    mu: int,
    addresses: Sequence[int],
    kinds: Sequence[int],
    numbers: Sequence[float],
    at_most: bool,
    threads: int,
) -> tuple[str, int, int] | None: ...
def box_backward_at(
    is_double: bool,
    sizes: Sequence[int],
    y: int,
    v: int,
    mu: int,
    addresses: Sequence[int],
    kinds: Sequence[int],
    numbers: Sequence[float],
    outputs: Sequence[int],
    at_most: bool,
    threads: int,
    one_v: bool = False,
) -> tuple[str, int, int] | None: ...
def segments(
    x: NDArray[Any],
    offsets: NDArray[Any],
    k: float,
    tau: float,
    y: NDArray[Any] | None = None,
    v: NDArray[Any] | None = None,
    ks: NDArray[Any] | None = None,
    taus: NDArray[Any] | None = None,
    grad_k: NDArray[Any] | None = None,
    grad_tau: NDArray[Any] | None = None,
    threads: int = 1,
    curve: int = 0,
) -> tuple[str, int, int] | None:
    """
    Write the projections of rows of different lengths into y; or, with v, the gradients of sum(v * x).
    """

def coactive(
    v: NDArray[Any],
    low: float,
    high: float,
    sums: NDArray[Any] | None = None,
    matrix: NDArray[Any] | None = None,
    threads: int = 1,
) -> tuple[str, int, int] | None:
    """
    Write the sums of the columns, and how often two columns are between low and high together.
    """

def column_step(
    links: NDArray[Any],
    bias: NDArray[Any],
    excess: NDArray[Any],
    capacity: NDArray[Any],
    slack: float,
    move: NDArray[Any],
) -> tuple[bool, float, float]:
    """
    Write the step to the minimum of the quadratic model; whether it has one, the longest move, their deviation.
    """

def column_inverse(links: NDArray[Any], bias: NDArray[Any], inverse: NDArray[Any]) -> None:
    """Write the inverse of the Laplacian of the columns with a bias."""

def column_parts(links: NDArray[Any], parts: NDArray[Any]) -> None:
    """
    Write the least column of the part of the graph that each column is in.
    """

def project_at(
    is_double: bool,
    x: int,
    y: int,
    shape: tuple[int, ...],
    axis: int,
    k: float,
    tau: float,
    threads: int,
    curve: int = 0,
) -> tuple[str, int, int] | None: ...
def backward_at(
    is_double: bool,
    y: int,
    v: int,
    grad: int,
    shape: tuple[int, ...],
    axis: int,
    tau: float,
    threads: int,
    curve: int = 0,
) -> tuple[str, int, int] | None: ...
def loss_at(
    is_double: bool,
    shape: Sequence[int],
    strides: Sequence[int],
    x: int,
    labels: int,
    ignored: int,
    dense: int,
    k: int,
    k_is_fraction: bool,
    taus: int,
    tau: float,
    weight: int,
    mean: bool,
    grad: int,
    mu: int,
    k_used: int,
    threads: int,
) -> tuple[Any, ...]: ...
def track_at(
    is_double: bool,
    mu: int,
    k: int,
    classes: int,
    samples: int,
    size: float,
    least: float,
    with_share: bool,
    threshold: int,
    seen: int,
    share: int,
    samples_seen: int,
) -> None: ...
def objective_at(
    is_double: bool, step: int, sizes: Sequence[int], addresses: Sequence[int], threads: int
) -> tuple[str, int, int] | None: ...
