"""Problems at the kernel's own boundaries: one below, at and one above each constant that it reports.

A slice's length and the number of slices are walked apart, while the other stays small. A problem is a few plain
values, so a printed one can be run again: `python -m tests.kernel.sweep --only "n=6 slices=16385 ..."`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields

from hypersimplex import _kernel

LAYOUTS = ("last", "first", "middle", "strided", "transposed", "permuted")
VALUES = ("normal", "ties", "masked", "offset")
MOST_ENTRIES, ENOUGH = 400_000, 100_000
# Threads are walked by every problem, not by its shape.
NOT_A_SIZE = {"most_threads"}


@dataclass(frozen=True)
class Problem:
    n: int
    slices: int
    layout: str
    dtype: str  # f4 or f8
    values: str
    apart: bool  # k and tau differ from slice to slice
    seed: int

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def parse(text: str) -> Problem:
    words = dict(word.split("=") for word in text.split())
    kinds = {"n": int, "slices": int, "seed": int, "apart": lambda word: word == "True"}
    return Problem(**{name: kinds.get(name, str)(word) for name, word in words.items()})


def _around(values: set[int]) -> list[int]:
    return sorted({v + d for v in values for d in (-1, 0, 1) if v + d >= 1})


def _sizes(dtype: str) -> set[int]:
    """What the constants may mean: so many entries or slices, or so many bytes of a slice or of a tile of slices."""
    size, found = int(dtype[1]), set()
    tiles = [v for name, v in _kernel.constants().items() if "bytes" not in name and v < 256]
    for name, value in _kernel.constants().items():
        if name in NOT_A_SIZE:
            continue
        found |= {value // size // across for across in (1, *tiles)} if "bytes" in name else {value}
    return found


def lengths(dtype: str) -> list[int]:
    """Lengths of a slice where the kernel changes its way, and some registers with a rest."""
    width = _kernel.constants()[f"float{8 * int(dtype[1])}_lanes"]
    return _around(_sizes(dtype) | {width * times for times in (2, 3, 4, 8, 16, 32, 64)})


def counts(dtype: str) -> list[int]:
    """Numbers of slices where the kernel changes its way, and where the last of many tiles is narrow."""
    tiles = {v for v in _sizes(dtype) if 8 <= v <= 256}
    return _around(_sizes(dtype) | {tile * times for tile in tiles for times in (2, 3, tile // 2, tile, tile + 1)})


def boundary_problems() -> Iterator[Problem]:
    """All of them, in a fixed order; the rest of each is drawn from a fixed seed."""
    rng = random.Random(11)
    work = _kernel.constants()["parallel_worth"]
    for dtype in ("f4", "f8"):
        for layout in LAYOUTS:
            sizes = [(n, few) for n in lengths(dtype) for few in (1, 3, 19) if few == 1 or n * few <= ENOUGH]
            sizes += [(n, count) for count in counts(dtype) for n in (2, 6, 65) if n == 2 or n * count <= ENOUGH]
            sizes += [(work // across + d, across) for across in (3, 24, 200) for d in (-1, 0, 1)]
            for n, slices in sizes:
                if n * slices <= MOST_ENTRIES:
                    yield _fill(rng, n, slices, layout, dtype)


def sample(every: int) -> Iterator[Problem]:
    """One in so many; of the long slices, which are few, one in eight."""
    long = 0
    for i, problem in enumerate(boundary_problems()):
        is_long = problem.n >= _kernel.constants()["parallel_row"]
        long += is_long
        if i % every == 0 or (is_long and long % 8 == 1):
            yield problem


def drawn_problem(rng: random.Random) -> Problem:
    """Any problem: length and number of slices near a boundary, or anywhere."""
    dtype = rng.choice(("f4", "f8"))
    n = rng.choice(lengths(dtype)) if rng.random() < 0.5 else int(2 ** rng.uniform(0, 18))
    n = min(n, MOST_ENTRIES)
    most = MOST_ENTRIES // n
    fitting = [count for count in counts(dtype) if count <= most]
    slices = rng.choice(fitting) if rng.random() < 0.5 else int(most ** rng.random())
    return _fill(rng, n, slices, rng.choice(LAYOUTS), dtype)


def _fill(rng: random.Random, n: int, slices: int, layout: str, dtype: str) -> Problem:
    return Problem(n, slices, layout, dtype, rng.choice(VALUES), rng.random() < 0.5, rng.getrandbits(32))
