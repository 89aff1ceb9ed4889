"""Large pages are asked for under an output array that holds one, and nowhere else."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from hypersimplex import _kernel

PAGE = 2 << 20
pytestmark = pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists() or not Path("/proc/self/smaps").exists(),
    reason="this system has no large pages to ask for",
)


def asked_for(address: int) -> bool:
    """Whether the system was asked for large pages at this address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            begin, end = (int(group, 16) for group in found.groups())
            inside = begin <= address < end
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError(f"{address:#x} is not mapped")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shift", "more", "asked"), [(0, -1, False), (0, 0, True), (0, 1, True), (1, 0, False)])
def test_from_one_page_on(dtype, shift, more, asked):
    memory = np.frombuffer(mmap.mmap(-1, 4 * PAGE), np.uint8)
    size = np.dtype(dtype).itemsize
    first = -memory.ctypes.data % PAGE
    begin, entries = first + shift * size, PAGE // size + more
    y = memory[begin : begin + entries * size].view(dtype)
    x = np.random.default_rng(0).standard_normal(entries).astype(dtype)
    assert _kernel.project(x, entries / 10, 1.0, y=y) is None
    assert y.sum(dtype=np.float64) == pytest.approx(entries / 10)
    assert asked_for(memory.ctypes.data + first) is asked
