"""The executor finds what it is there for: barriers that are missing, and faults that only compiled kernels have."""

import numpy as np
import pytest
import torch

from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch.backends import triton as backend
from hypersimplex.torch.backends.triton import _backend, _kernels, _self_check
from tests.triton.compiled.changed import with_fault
from tests.triton.conftest import ARCHITECTURES
from tests.triton.ptx.device import emulated
from tests.triton.ptx.faults import Race

architectures = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda each: f"sm_{each}")


def numbers(*shape):
    return torch.from_numpy(np.random.default_rng(8).normal(size=shape).astype(np.float32))


# Entries so far apart that none lies between 0 and 1: the kernels then take all their branches.
def project(n, slices, dim):
    x = 1000 * (numbers(slices, n) if dim else numbers(n, slices))
    return lambda: backend.project(x, n // 3, 0.7, dim)


def pullback(n, slices, dim):
    y, v = (numbers(slices, n) if dim else numbers(n, slices) for _ in range(2))
    return lambda: backend.pullback(y, v, 0.7, dim)


def loss(n, dense):
    target = numbers(n, 4).abs().round().clamp(max=1) if dense else torch.arange(n) % 4
    batch = Batch(1e6 * numbers(n, 4), target, dense, (n,))
    return lambda: backend.loss(batch, Settings(torch.ones(4), -100, "mean", None, None, 0.5), True)


# Slices of several tiles where a kernel loops over them: the first barrier in a loop waits for the round before.
RUNS = {
    "a row": project(300, 1, 1), "a long row": project(900, 1, 1), "columns": project(60, 8, 0),
    "long columns": project(200, 8, 0), "gradient of a row": pullback(300, 1, 1),
    "gradient of a long row": pullback(5000, 1, 1), "gradient of columns": pullback(600, 8, 0),
    "a loss": loss(90, False), "a long loss": loss(200, False), "a long loss, dense": loss(1200, True),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(_backend, "TILE", 512)
    monkeypatch.setattr(_backend, "LEAST", 512)


@architectures
@pytest.mark.parametrize("name", RUNS)
def test_every_barrier_is_missed(name, architecture):
    """All barriers are executed, and where one is taken away, a race is reported."""
    seen = []
    with emulated(architecture, lambda program: seen.append(program) or program):
        RUNS[name]()
    unnoticed = []
    for program in seen:
        barriers = [
            first + i
            for first, stretch in program.stretches.items()
            for i, each in enumerate(stretch.instructions)
            if each.opcode == "bar.sync"
        ]
        assert barriers
        assert len(barriers) == sum(each.opcode == "bar.sync" for each in program.kernel.instructions)
        if name == "a loss" and program.kernel.name == "count":
            continue  # its loop has a single round: the barrier that waits for the one before shows in "a long loss"
        for place in barriers:
            without = program.replaced(place, "bar.warp.sync")
            with emulated(architecture, swapped(program, without)):
                try:
                    RUNS[name]()
                except Race:
                    continue
            unnoticed.append((program.kernel.name, program.kernel.instructions[place].line))
    assert unnoticed == []


def swapped(program, other):
    """The other program in the place of this one."""
    return lambda given: other if given.kernel.name == program.kernel.name else given


SHORT_ROWS = _self_check._problem("short rows", 10, 61, 1)
ONE_ROW = _self_check._problem("one row", 1, 300, 1)
STORE_MU = "    tl.store(mu + slices, at, mask=slices < count)\n"
STORE_Y = "projected(z, share, t, c, e, at, flat)"


@pytest.mark.parametrize(
    ("right", "wrong", "problem", "said"),
    [
        ("at_c, at_e = tl.zeros_like(c), tl.zeros_like(e)", "at_c, at_e = c, e", SHORT_ROWS, "y by"),
        (f"{STORE_MU}    if", "    if", SHORT_ROWS, "Unwritten: project leaves"),
        (f"{STORE_MU}    if", f"{STORE_MU.replace('slices, at', 'slices + 1, at')}    if", SHORT_ROWS, "OutOfBounds"),
        (f"{STORE_Y}, mask=mask)", f"{STORE_Y})", ONE_ROW, "OutOfBounds"),
        # What lies beyond the end of a short row is the next one, which other threads of the program write.
        (f"{STORE_Y}, mask=mask)", f"{STORE_Y})", SHORT_ROWS, "Race: two warps write different values"),
    ],
    ids=[
        "a loop that forgets its point", "an output forgotten", "an output beyond its end", "a mask forgotten",
        "a mask forgotten between rows",
    ],
)  # fmt: skip
def test_a_fault_of_the_kernels_is_found(right, wrong, problem, said, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "_kernels", with_fault(_kernels, tmp_path / "kernels.py", right, wrong))
    with emulated(ARCHITECTURES[-1]):
        want = _self_check.plain.project(problem.x, problem.k, problem.tau, problem.dim)
        given = _self_check._backend.project, problem.x, problem.k, problem.tau, problem.dim
        found = list(_self_check._compare("rows", ("y", "mu"), want, torch.float64, *given))
    assert found
    assert said in found[0]
