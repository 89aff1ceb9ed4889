"""Instructions that the CUDA kernels execute for each entry, by kind: counted by the tests' executor, without a device.

python -m benchmarks.cuda_counts --sm 90 --dtype float32

A figure is how many instructions of PTX the threads of all blocks execute, divided by the number of entries. Where many
threads repeat the same work, all of them count. ptxas makes several instructions of a division and may fuse or drop
others: the figures show where the work is, and what a change does to it; they are no times.
"""

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator

import torch

os.environ["TRITON_INTERPRET"] = "0"  # read when Triton is first imported

from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch.backends import triton as backend
from tests.triton.ptx.counts import KINDS
from tests.triton.ptx.device import emulated

SHAPES = [((16, 64), 1), ((4, 1024), 1), ((2, 8192), 1), ((1, 50_000), 1), ((1000, 8), 0), ((5000, 8), 0)]
# What is about memory that costs no traffic is left out of the table, and so is what is rare.
SHOWN = tuple(kind for kind in KINDS if kind not in ("parameter", "local memory"))


def calls(shape: tuple[int, int], dim: int, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every kernel on normal numbers, with a tenth of them chosen; the loss where the columns are classes."""
    generator = torch.Generator().manual_seed(0)
    x, v = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    k = shape[dim] / 10
    y = backend.plain.project(x, k, 1.0, dim)[0]
    yield "project", lambda: backend.project(x, k, 1.0, dim)
    yield "pullback", lambda: backend.pullback(y, v, 1.0, dim)
    if dim == 0:
        labels = torch.arange(shape[0]) % shape[1]
        batch, settings = Batch(x, labels, False, (shape[0],)), Settings(None, -100, "mean", None, None, 1.0)
        yield "loss", lambda: backend.loss(batch, settings, True)


def counted(call: Callable[[], object], architecture: int) -> Counter[str]:
    """How often threads executed an instruction of each kind."""
    with emulated(architecture) as device:
        call()
    return sum(device.counts.values(), Counter())


def table(architecture: int, dtype: torch.dtype, shapes: list[tuple[tuple[int, int], int]]) -> Iterator[str]:
    yield " | ".join(("| kernel", "shape", "dim", "all", *SHOWN)) + " |"
    yield "| --- " * 2 + "| ---: " * (2 + len(SHOWN)) + "|"
    for shape, dim in shapes:
        for name, call in calls(shape, dim, dtype):
            found = counted(call, architecture)
            entries = shape[0] * shape[1]
            figures = (found.total(), *(found[kind] for kind in SHOWN))
            yield f"| {name} | {shape} | {dim} | " + " | ".join(f"{each / entries:.1f}" for each in figures) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sm", type=int, default=90, help="the architecture to compile for")
    parser.add_argument("--dtype", default="float32", choices=["float16", "bfloat16", "float32", "float64"])
    given = parser.parse_args()
    for line in table(given.sm, getattr(torch, given.dtype), SHAPES):
        print(line, flush=True)


if __name__ == "__main__":
    main()
