"""Scores, labels and weights as the kernel takes them, and its passes over them."""

import sys
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypersimplex import _checks, _kernel
from hypersimplex._numpy import threads

Array = NDArray[Any]
Doubles = NDArray[np.float64]

COUNT, SUMS, GAP, WRITE = range(4)
POSITIVE, SQUARE = 3, 4  # rows of sums, behind those of the search
# What steps read and write beside scores, labels and weights, in the order in which the kernel takes it.
ARRAYS = ("mu", "tau", "mean", "on", "off", "skip", "sums", "grad", "hess")


class Room:
    """Memory for gradient and hessian, used again once nobody looks at the arrays that were made of it.

    New memory is the largest part of a call: the system clears every page of it.
    """

    def __init__(self) -> None:
        self.array: Array = np.empty(0, np.float32)

    def take(self, shape: tuple[int, ...]) -> Array:
        if self.array.shape != shape or self.references() > UNSEEN:
            # One piece for both: NumPy asks for large pages from four megabytes on.
            self.array = np.empty(shape, np.float32)
        return self.array

    def references(self) -> int:
        return sys.getrefcount(self.array)

    def __reduce__(self) -> tuple[type["Room"], tuple[()]]:
        return Room, ()


# How many this counts where only the room itself knows the array, which depends on the version of Python.
UNSEEN = Room().references()


class Columns:
    """One contiguous column of scores for each class; the arrays given are used where they lie if that is possible.

    LightGBM's scores are columns already. XGBoost's multiclass scores are rows, and are copied.
    """

    def __init__(
        self, scores: ArrayLike, labels: ArrayLike, weights: ArrayLike | None, most_threads: int | None = None
    ) -> None:
        x = np.asarray(scores)
        if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] == 0):
            raise ValueError(f"y_pred must have shape (n,) or (n, classes), got shape {x.shape}")
        if x.dtype.kind != "f":
            raise _checks.not_floating("y_pred", x.dtype)
        self.shape = x.shape
        x = x[:, None] if x.ndim == 1 else x
        if x.dtype not in (np.float32, np.float64) or not x.dtype.isnative:
            x = x.astype(np.float64)
        if x.strides[0] != x.itemsize or x.strides[1] % x.itemsize or not x.flags.aligned:
            x = np.asfortranarray(x) if x.strides[0] != x.itemsize else x.copy(order="F")
        self.n, self.classes = n, classes = x.shape
        self.x = x
        self.labels = one_each("y_true", labels, n)
        self.weights = None if weights is None else one_each("sample_weight", weights, n)
        row, each, rows = (np.float32, (n,)), (np.float64, (classes,)), (np.float32, (classes, n))
        at = {"mu": each, "tau": each}
        self.kinds: dict[int, dict[str, Any]] = {
            COUNT: {"sums": (np.float64, (classes + 1,))},
            SUMS: at | {"skip": (np.bool_, (classes,)), "sums": (np.float64, (classes, 5))},
            GAP: at | {"sums": (np.float64, (classes, 2))},
            WRITE: at | {"mean": each, "on": each, "off": each, "grad": rows, "hess": rows},
        }
        self.steps = (n, classes, x.strides[1] // x.itemsize)
        self.threads = threads() if most_threads is None else min(threads(), most_threads)
        weighted = 0 if self.weights is None else address("weights", self.weights, *row)
        self.places = (x.ctypes.data, address("labels", self.labels, *row), weighted)

    def sample(self, step: int) -> "Columns":
        """Every step-th row."""
        weights = None if self.weights is None else self.weights[::step]
        return Columns(self.x[::step], self.labels[::step], weights, self.threads)

    def moments(self) -> Doubles:
        """The weight of all rows, and for a first guess of every class: weight, sum and square sum of some scores."""
        weight = float(self.n) if self.weights is None else float(self.weights.sum(dtype=np.float64))
        step = -(-self.n // 2048) or 1
        x = self.x[::step].astype(np.float64)
        w = np.ones((len(x), 1)) if self.weights is None else self.weights[::step, None].astype(np.float64)
        w = np.where(np.isfinite(x), w, 0.0)
        x = np.where(w > 0, x, 0.0)
        return np.concatenate([[weight], w.sum(0), (w * x).sum(0), (w * x * x).sum(0)])

    def count(self) -> Doubles:
        """The weight of every class, and of all rows."""
        answer = np.empty(self.classes + 1)
        failure = self.run(COUNT, sums=answer)
        if failure is not None:
            self._fail(failure)
        return answer

    def sums(self, mu: Doubles, tau: Doubles, skip: NDArray[np.bool_], with_labels: bool) -> Doubles:
        """Five sums of every class: those of the search, of the active targets and of the squared errors."""
        answer = np.zeros((self.classes, 5))
        self.run(SUMS, with_labels, mu=mu, tau=tau, skip=skip, sums=answer)
        return answer

    def infinite(self) -> Doubles:
        """For every class, the weight of the rows whose score is above -inf, and of those whose score is +inf."""
        weights = np.ones(self.n) if self.weights is None else self.weights.astype(np.float64)
        return np.stack([weights @ (self.x > -np.inf), weights @ (self.x == np.inf)])

    def gap(self, mu: Doubles, tau: Doubles) -> Doubles:
        """For every class, the largest score below the middle of its ramp and the smallest above."""
        answer = np.empty((self.classes, 2))
        self.run(GAP, mu=mu, tau=tau, sums=answer)
        return answer

    def write(
        self, room: "Room", mu: Doubles, tau: Doubles, mean: Doubles, on: Doubles, off: Doubles
    ) -> tuple[Array, Array]:
        """Gradient and hessian, float32: what the boosters compute with, so that they need not convert."""
        both = room.take((2, self.classes, self.n))
        self.run(WRITE, mu=mu, tau=tau, mean=mean, on=on, off=off, grad=both[0], hess=both[1])
        grad, hess = (half.T.reshape(self.shape, order="F") for half in both)
        return grad, hess

    def run(self, step: int, with_labels: bool = True, **arrays: Array) -> _checks.Failure | None:
        """One step of the kernel. Every array it will read or write is looked at here, and nowhere else."""
        x, labels, weights = self.places
        kinds = self.kinds[step]
        others = [address(name, arrays.get(name), *kinds[name]) if name in kinds else 0 for name in ARRAYS]
        addresses = [x, labels if with_labels else 0, weights, *others]
        return _kernel.objective_at(self.x.dtype == np.float64, step, self.steps, addresses, self.threads)

    def _fail(self, failure: _checks.Failure) -> NoReturn:
        what, row, _ = failure
        if what == "weight":
            assert self.weights is not None
            raise ValueError(f"sample_weight must be finite and not negative, got {self.weights[row]} in row {row}")
        rule = "between 0 and 1" if self.classes == 1 else f"a whole number between 0 and {self.classes - 1}"
        raise ValueError(f"y_true must be {rule}, got {self.labels[row]} in row {row}")


def address(name: str, array: Array | None, dtype: type, shape: tuple[int, ...]) -> int:
    """Where the array lies, if the kernel can read it as it is."""
    fits = array is not None and array.dtype == dtype and array.shape == shape
    if array is None or not (fits and array.flags.c_contiguous and array.flags.aligned):
        got = "None" if array is None else f"{array.dtype} of shape {array.shape} with strides {array.strides}"
        raise ValueError(f"{name} must be a contiguous {dtype.__name__} array of shape {shape}, got {got}")
    return int(array.__array_interface__["data"][0])  # in half the time that ctypes takes


def one_each(name: str, values: ArrayLike, n: int) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.shape != (n,):
        got = "None" if values is None else f"shape {array.shape}"
        raise ValueError(f"{name} must have one number for each of the {n} rows of y_pred, got {got}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numbers, got dtype {array.dtype}")
    return np.require(array, np.float32, ["C", "A"])


def per_class(name: str, value: ArrayLike, classes: int) -> Doubles:
    """A number, or one for each class, as float64."""
    array = numbers(name, value)
    if array.shape not in ((), (classes,)):
        raise ValueError(f"{name} must be a number or have shape ({classes},), got shape {array.shape}")
    return array + np.zeros(classes)


def numbers(name: str, value: ArrayLike) -> Doubles:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "fiub":
        raise _checks.not_a_number(name, value)
    return array.astype(np.float64)
