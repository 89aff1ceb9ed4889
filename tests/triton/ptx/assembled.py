"""Kernels compiled and assembled, but not executed: their registers, what they spill, and the instructions in them.

python -m tests.triton.ptx.assembled 80,90        prints the table for these architectures
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "0"  # read when Triton is first imported

import torch
from triton.backends.nvidia.compiler import get_ptxas

from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch.backends import triton as backend
from hypersimplex.torch.backends.triton import _backend
from tests.triton.ptx.counts import kind_of
from tests.triton.ptx.device import SHARED_BYTES, emulated
from tests.triton.ptx.machine import Program
from tests.triton.ptx.memory import BEFORE

# Threads that a multiprocessor holds, by architecture. All have 65,536 registers; warps get them in units of 256.
THREADS = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}
REGISTERS, UNIT, MOST_BLOCKS = 65536, 256, 16


class Assembled(NamedTuple):
    kernel: str
    threads: int
    shared: int
    registers: int
    spilled: int  # bytes
    instructions: Counter[str]  # of PTX, by kind

    def blocks(self, architecture: int) -> int:
        """How many blocks a multiprocessor holds at once."""
        warps = self.threads // 32
        by_registers = REGISTERS // (-(-self.registers * 32 // UNIT) * UNIT * warps)
        by_shared = SHARED_BYTES[architecture] // max(self.shared + 1024, 1)
        return min(by_registers, by_shared, THREADS[architecture] // self.threads, MOST_BLOCKS)


class _NotRun:
    """Takes the place of a program: what it would write counts as written."""

    def run(self, _grid: Any, _parameters: Any, memory: Any, _shared: int) -> Counter[str]:
        for region in memory.regions:
            region.mark[:] = BEFORE
        return Counter()


def assembled(architecture: int, call: Callable[[], object]) -> list[Assembled]:
    """Every kernel that the call launches."""
    seen: list[tuple[Program, int]] = []

    def keep(program: Program) -> Any:
        seen.append((program, device.shared_of.get(id(program), 0)))
        return _NotRun()

    with emulated(architecture, keep) as device:
        call()
    return [_assemble(program, shared, architecture) for program, shared in seen]


def _assemble(program: Program, shared: int, architecture: int) -> Assembled:
    target = re.search(r"\.target (\w+)", program.text)
    assert target
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(program.text)
        as_triton_does = ["-lineinfo", "-v", "--regAllocOptLevel=2", f"--gpu-name={target[1]}"]
        command = [get_ptxas(architecture).path, *as_triton_does, source, "-o", f"{source}.cubin"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    assert registers
    assert spilled
    kinds = Counter(kind_of(each.opcode) for each in program.kernel.instructions)
    return Assembled(
        program.kernel.name, program.kernel.threads, shared, int(registers[1]), int(spilled[1]), kinds
    )  # fmt: skip


def calls(dtype: torch.dtype, tile: int) -> dict[str, Callable[[], object]]:
    """A call for every way that a plan knows, in tiles of so many entries."""
    x, long = torch.randn(3, tile).to(dtype), torch.randn(1, 3 * tile + 5).to(dtype)
    short, columns = torch.randn(tile // 8, 8).to(dtype), torch.randn(tile, 8).to(dtype)

    def loss(logits: torch.Tensor, dense: bool) -> Callable[[], object]:
        target = torch.zeros(logits.shape, dtype=torch.float32) if dense else torch.zeros(len(logits)).long()
        settings = Settings(None, -100, "mean", None, None, 1.0)
        return lambda: backend.loss(Batch(logits, target, dense, (len(logits),)), settings, True)

    forward_only = (True, False, False)
    return {
        "project rows": lambda: backend.project(x, 5.0, 1.0, 1),
        "project long rows": lambda: backend.project(long, 5.0, 1.0, 1),
        "project columns": lambda: backend.project(short, 5.0, 1.0, 0),
        "project long columns": lambda: backend.project(columns, 5.0, 1.0, 0),
        "pullback rows": lambda: backend.pullback(x, x, 1.0, 1, forward_only),
        "pullback long rows": lambda: backend.pullback(long, long, 1.0, 1, forward_only),
        "pullback long columns": lambda: backend.pullback(columns, columns, 1.0, 0),
        "loss": loss(short, False),
        "long loss": loss(columns, False),
        "long loss, dense": loss(columns, True),
    }


def every(
    architecture: int, dtype: torch.dtype, tile: int, long_tile: int = _backend.LONG_TILE
) -> Iterator[tuple[str, Assembled]]:
    """Every kernel of every call; `finish` handles no entries and is left out."""
    for name in calls(dtype, tile):
        with patch.object(_backend, "TILE", tile), patch.object(_backend, "LONG_TILE", min(tile, long_tile)):
            for found in assembled(architecture, calls(dtype, tile)[name]):
                if found.kernel != "finish":
                    yield f"{name}: {found.kernel}", found


def table(architectures: list[int]) -> Iterator[str]:
    yield "| sm | call: kernel | threads | registers | spilled bytes | blocks per multiprocessor | PTX |"
    yield "| --- " * 2 + "| ---: " * 5 + "|"
    for architecture in architectures:
        for name, found in every(architecture, torch.float32, _backend.TILE):
            figures = (found.threads, found.registers, found.spilled, found.blocks(architecture))
            total = found.instructions.total()
            yield f"| {architecture} | {name} | " + " | ".join(map(str, (*figures, total))) + " |"


if __name__ == "__main__":
    for line in table([int(each) for each in sys.argv[1].split(",")]):
        print(line, flush=True)
