from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from hypersimplex._checks import Failure

def variant() -> str: ...
def constants() -> dict[str, int]: ...
def lies_evenly(shape: Sequence[int], strides: Sequence[int], axis: int) -> bool: ...
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
) -> Failure | None: ...
def binary(
    x: NDArray[Any], k: float, y: NDArray[Any], ks: NDArray[Any] | None = None, axis: int = -1, threads: int = 1
) -> Failure | None: ...
def project_at(
    is_double: bool,
    x: int,
    y: int,
    mu: int,
    shape: Sequence[int],
    strides: Sequence[int],
    axis: int,
    k_address: int,
    k: float,
    tau_address: int,
    tau: float,
    start: int,
    threads: int,
    /,
) -> Failure | None: ...
def backward_at(
    is_double: bool,
    y: int,
    v: int,
    grad: int,
    grad_k: int,
    grad_tau: int,
    shape: Sequence[int],
    strides: Sequence[int],
    axis: int,
    tau_address: int,
    tau: float,
    threads: int,
    /,
) -> Failure | None: ...
def binary_at(
    is_double: bool,
    x: int,
    y: int,
    shape: Sequence[int],
    strides: Sequence[int],
    axis: int,
    k_address: int,
    k: float,
    threads: int,
    /,
) -> Failure | None: ...
def track_at(
    is_double: bool,
    mu: int,
    k: int,
    classes: int,
    samples: int,
    momentum: float,
    with_share: bool,
    threshold: int,
    seen: int,
    share: int,
    batches: int,
    /,
) -> None: ...
def loss_at(
    is_double: bool,
    shape: Sequence[int],
    strides: Sequence[int],
    x: int,
    labels: int,
    ignored: int,
    dense: int,
    k: int,
    share: bool,
    tau_address: int,
    tau: float,
    weight: int,
    start: int,
    scale: float,
    mean: bool,
    grad: int,
    mu: int,
    k_used: int,
    threads: int,
    /,
) -> tuple[float, int] | Failure: ...
def objective_at(
    is_double: bool, step: int, sizes: Sequence[int], addresses: Sequence[int], threads: int, /
) -> Failure | None: ...
def share_at(
    is_double: bool,
    shape: Sequence[int],
    strides: Sequence[int],
    ignored: int,
    addresses: Sequence[int],
    scale: float,
    threads: int,
    /,
) -> Failure | None: ...
