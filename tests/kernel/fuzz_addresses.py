"""Sound and unsound calls of the functions that take addresses; fuzz_kernel.py draws them.

They trust an address, so the memory behind it is always real and as large as it is said to be. Around every array lie
bytes that must stay as they are, and everything else may be nonsense: that must be refused before memory is touched.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

JUNK = [None, "text", b"bytes", 2.5, [1.0, 2.0], {}, object(), -1, 2**70, -(2**70), [], [1], [2**70], float("nan")]
JUNK += [(), (1,), (2.5, "text"), (2**70, 2)]
GUARD, PATTERN = 64, 0xA5


class Memory:
    """Arrays with guarded bytes on both sides."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)
        self.buffers: list[tuple[np.ndarray, int]] = []

    def take(self, dtype: str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        buffer = np.full(size + 2 * GUARD, PATTERN, np.uint8)
        self.buffers.append((buffer, size))
        array = buffer[GUARD : GUARD + size].view(dtype)
        array[...] = 0
        return array

    def normal(self, dtype: str, count: int) -> np.ndarray:
        array = self.take(dtype, count)
        array[...] = self.numbers.normal(size=count)
        return array

    def check(self) -> None:
        for buffer, size in self.buffers:
            assert (buffer[:GUARD] == PATTERN).all(), "written before an array"
            assert (buffer[GUARD + size :] == PATTERN).all(), "written behind an array"


def where(array: np.ndarray | None) -> int:
    return 0 if array is None else array.ctypes.data


def sizes(rng: random.Random) -> tuple[tuple[int, ...], int]:
    """A shape and an axis."""
    shape = tuple(rng.choice([1, 2, 3, 5, 8, 17, 40, 130]) for _ in range(rng.choice([1, 2, 2, 2, 3])))
    return shape, rng.randrange(-len(shape), len(shape))


def project(rng: random.Random, m: Memory) -> list[Any]:
    shape, axis = sizes(rng)
    entries, dtype = int(np.prod(shape)), rng.choice(["f4", "f8"])
    x, y = m.normal(dtype, entries), m.take(dtype, entries) if rng.random() < 0.9 else None
    x[m.numbers.random(entries) < rng.choice([0, 0, 0.1])] = rng.choice([np.inf, -np.inf, np.nan])
    k = rng.choice([0.0, 0.5, 1.0, shape[axis] / 2, -1.0, 1e9, float("nan")])
    tau, threads = rng.choice([1.0, 0.1, 1e-3, 0.0, -1.0, 1e39]), rng.choice([1, 2, 3, 0, -5, 1000])
    return [dtype == "f8", where(x), where(y), shape, axis, k, tau, threads]


def backward(rng: random.Random, m: Memory) -> list[Any]:
    shape, axis = sizes(rng)
    entries, dtype = int(np.prod(shape)), rng.choice(["f4", "f8"])
    y, v = m.take(dtype, entries), m.normal(dtype, entries)
    y[...] = np.clip(m.numbers.normal(0.5, 0.5, size=entries), 0, 1)
    grad = m.take(dtype, entries) if rng.random() < 0.9 else None
    threads = rng.choice([1, 2, 3, 0, -5, 1000])
    return [dtype == "f8", where(y), where(v), where(grad), shape, axis, 0.5, threads]


def loss(rng: random.Random, m: Memory) -> list[Any]:
    shape = [rng.choice([1, 2, 7, 33, 300]), rng.choice([1, 2, 5, 33, 130]), rng.choice([1, 1, 3])]
    strides = [shape[1] * shape[2], shape[2], 1]
    entries, dtype = int(np.prod(shape)), rng.choice(["f4", "f8"])
    x, grad = m.normal(dtype, entries), m.take(dtype, entries) if rng.random() < 0.7 else None
    labels, dense = m.take("i8", shape[0] * shape[2]), None
    labels[...] = m.numbers.integers(-1, shape[1] + rng.choice([0, 0, 1]), size=labels.size)
    if rng.random() < 0.3:
        labels, dense = None, m.take(dtype, entries)
        dense[...] = m.numbers.random(entries)
    weight = m.take("f8", shape[1]) if rng.random() < 0.5 else None
    mu, used = m.take("f8", shape[1]), m.take("f8", shape[1])
    numbers = [0, False, 0, rng.choice([1.0, 0.1, 0.0, float("nan")]), where(weight), rng.random() < 0.5]
    given = [dtype == "f8", shape, strides, where(x), where(labels), -1, where(dense), *numbers]
    return [*given, where(grad), where(mu), where(used), rng.choice([1, 2, 3, 0])]


def track(rng: random.Random, m: Memory) -> list[Any]:
    classes, dtype = rng.choice([1, 3, 50]), rng.choice(["f4", "f8"])
    mu, k = m.normal("f8", classes), m.normal("f8", classes)
    state = [m.take(dtype, classes), m.take(dtype, classes), m.take(dtype, classes), m.take(dtype, 1)]
    return [dtype == "f8", where(mu), where(k), classes, 10, 10.0, 0.1, rng.random() < 0.5, *map(where, state)]


def objective(rng: random.Random, m: Memory) -> list[Any]:
    n, classes, dtype = rng.choice([1, 5, 64, 1000]), rng.choice([1, 2, 7]), rng.choice(["f4", "f8"])
    labels = m.take("f4", n)
    labels[...] = m.numbers.integers(0, 2, size=n)
    each = [m.normal("f8", classes) for _ in range(5)]
    each[1][...] = 0.5
    both = [m.take("f4", n * classes), m.take("f4", n * classes)]
    arrays = [m.normal(dtype, n * classes), labels, None, *each, None, m.take("f8", 5 * classes + 1), *both]
    addresses = [where(a) for a in arrays]
    return [dtype == "f8", rng.choice([0, 1, 2, 3, 4, -1]), [n, classes, n], addresses, rng.choice([1, 2, 3])]


def box_numbers(rng: random.Random, m: Memory, rows: int, n: int) -> list[Any]:
    """Addresses, kinds and numbers of total, tau, lower, upper and weight."""
    addresses = [where(m.normal("f8", rows)) if rng.random() < 0.5 else 0 for _ in range(2)]
    kinds = [rng.choice([0, 1, 2, 3]) + 4 * rng.randrange(2) for _ in range(3)]
    for kind in kinds:
        count = (rows if kind & 1 else 1) * (n if kind & 2 else 1)
        addresses.append(where(m.normal("f4" if kind & 4 else "f8", count)) if rng.random() < 0.5 else 0)
    return [addresses, kinds, [rng.choice([1.0, -1.0, np.nan]), rng.choice([1.0, 0.0]), -2.0, 2.0, 1.0]]


def box(rng: random.Random, m: Memory) -> list[Any]:
    rows, n, dtype = rng.choice([0, 1, 2, 7]), rng.choice([0, 1, 3, 33, 300]), rng.choice(["f4", "f8"])
    x, y = m.normal(dtype, rows * n), m.take(dtype, rows * n) if rng.random() < 0.9 else None
    numbers = box_numbers(rng, m, rows, n)
    threads = rng.choice([1, 2, 0])
    return [dtype == "f8", [rows, n], where(x), where(y), where(m.take("f8", rows)), *numbers, True, threads]


def box_backward(rng: random.Random, m: Memory) -> list[Any]:
    rows, n, dtype = rng.choice([0, 1, 2, 7]), rng.choice([0, 1, 3, 33, 300]), rng.choice(["f4", "f8"])
    y, v = m.normal(dtype, rows * n), m.normal(dtype, rows * n) if rng.random() < 0.9 else None
    outputs = [m.take(dtype, rows * n) for _ in range(4)] + [m.take("f8", rows) for _ in range(2)]
    wanted = [where(out) if rng.random() < 0.6 else 0 for out in outputs]
    given = [where(y), where(v), where(m.normal("f8", rows)), *box_numbers(rng, m, rows, n), wanted]
    return [dtype == "f8", [rows, n], *given, rng.random() < 0.5, rng.choice([1, 2, 0])]


CALLS: dict[str, Callable[[random.Random, Memory], list[Any]]] = {
    "project_at": project,
    "backward_at": backward,
    "loss_at": loss,
    "track_at": track,
    "objective_at": objective,
    "box_at": box,
    "box_backward_at": box_backward,
}


def spoil(rng: random.Random, arguments: list[Any]) -> list[Any]:
    """One argument that no memory hangs on is replaced, or one is missing or too many."""
    lists = [i for i, a in enumerate(arguments) if isinstance(a, list)]
    way = rng.randrange(4)
    if way == 0 and lists:
        at = rng.choice(lists)
        return [*arguments[:at], arguments[at][:-1], *arguments[at + 1 :]]
    if way == 1:
        return arguments[:-1]
    if way == 2:
        return [*arguments, 1]
    return [*arguments[:-1], rng.choice([None, "text", 2.5, [], 2**70])]
