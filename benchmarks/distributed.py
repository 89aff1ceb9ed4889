"""The loss over many ranks, both ways: bytes, collectives and time of a step, and the same without a group.

Run with `python -m benchmarks.distributed`. Ranks are processes over gloo on this machine with one thread each. A step
is the loss of a rank's logits and their gradient; its time is that of the slowest rank, and the ways take turns. Bytes
are those a rank receives: of an all_gather the others' parts, of an all_reduce 2 (R - 1)/R of its size, as in a ring.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from hypersimplex.torch import distributed, hypersimplex_loss

CASES = [(128, 10), (1024, 10), (8192, 10), (128, 1000), (1024, 1000), (4096, 1000)]
WAYS = ["gather", "search", "alone"]


class Traffic:
    """Counts what collectives bring to this rank."""

    def __init__(self) -> None:
        self.bytes, self.calls = 0.0, 0
        self.all_gather, self.all_reduce = dist.all_gather, dist.all_reduce

    def __enter__(self) -> "Traffic":
        def gather(parts: list[torch.Tensor], tensor: torch.Tensor, **rest: object) -> object:
            self.bytes += (len(parts) - 1) * tensor.nbytes
            self.calls += 1
            return self.all_gather(parts, tensor, **rest)

        def reduce(tensor: torch.Tensor, **rest: object) -> object:
            size = dist.get_world_size()
            self.bytes += 2 * (size - 1) / size * tensor.nbytes
            self.calls += 1
            return self.all_reduce(tensor, **rest)

        dist.all_gather, dist.all_reduce = gather, reduce
        return self

    def __exit__(self, *_: object) -> None:
        dist.all_gather, dist.all_reduce = self.all_gather, self.all_reduce


def step(way: str, logits: torch.Tensor, labels: torch.Tensor) -> None:
    logits.grad = None
    if way == "alone":
        hypersimplex_loss(logits, labels).backward()
        return
    with distributed.forced(way):
        hypersimplex_loss(logits, labels, group=True).backward()


def slowest(seconds: float) -> float:
    answer = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(answer, op=dist.ReduceOp.MAX)
    return float(answer)


def measure(samples: int, classes: int, rounds: int) -> dict[str, tuple[float, int, float]]:
    """Bytes, collectives and the median time, for every way. Logits are those of a model that has begun to learn."""
    rng = torch.Generator().manual_seed(dist.get_rank())
    labels = torch.randint(classes, (samples,), generator=rng)
    logits = torch.randn(samples, classes, generator=rng)
    logits[torch.arange(samples), labels] += 2
    logits.requires_grad_()
    traffic = {}
    for way in WAYS:
        with Traffic() as seen:
            step(way, logits, labels)
        traffic[way] = (seen.bytes, seen.calls)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            dist.barrier()
            start = time.perf_counter()
            step(way, logits, labels)
            times[way].append(slowest(time.perf_counter() - start))
    return {way: (*traffic[way], statistics.median(times[way])) for way in WAYS}


def table(rank: int, size: int, store: str, rounds: int, cases: list[tuple[int, int]]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    for samples, classes in cases:
        found = measure(samples, classes, rounds)
        if rank == 0:
            (gathered, gathers, gather), (searched, searches, search), (_, _, alone) = found.values()
            cells = [f"{size}", f"{samples} x {classes}", f"{gathered / 1e3:,.1f}", f"{searched / 1e3:,.1f}"]
            cells += [f"{gathers}", f"{searches}", *(f"{1e3 * seconds:.2f}" for seconds in (gather, search, alone))]
            print(f"| {' | '.join(cells)} |", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--quick", action="store_true", help="the smallest case alone, to see that it runs")
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    print(f"torch {torch.__version__}, gloo, float32, {machine}; medians of {options.rounds}\n")
    names = ["ranks", "a rank's logits", *(f"{what} {way}" for what in ("kB", "calls", "ms") for way in WAYS[:2])]
    print(f"| {' | '.join([*names, 'ms alone'])} |\n|{' --- |' * 9}", flush=True)
    for size in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            cases = CASES[:1] if options.quick else CASES
            arguments = (size, str(Path(folder) / "store"), options.rounds, cases)
            torch.multiprocessing.spawn(table, args=arguments, nprocs=size)


if __name__ == "__main__":
    main()
