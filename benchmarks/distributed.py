"""The loss over many ranks, both ways: bytes, collectives and time of a step, and the same without a group.

Run with `python -m benchmarks.distributed`; `--slices` measures soft_topk of one slice that lies over the ranks, beside
gathering it and beside each rank's own part. Ranks are processes over gloo on this machine with one thread each. A step
is the loss of a rank's logits and their gradient; its time is that of the slowest rank, and the ways take turns. Bytes
are those a rank receives: of an all_gather the others' parts, of an all_reduce 2 (R - 1)/R of its size, as in a ring.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from hypersimplex.torch import distributed, hypersimplex_loss, soft_topk

CASES = [(128, 10), (1024, 10), (8192, 10), (128, 1000), (1024, 1000), (4096, 1000)]
WAYS = ["gather", "search", "alone"]
ENTRIES = [10_000, 100_000, 1_000_000]  # per rank
OF_A_SLICE = ["gather", "group", "alone"]
Step = Callable[[str], None]


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


def batch(samples: int, classes: int) -> Step:
    """Logits are those of a model that has begun to learn."""
    rng = torch.Generator().manual_seed(dist.get_rank())
    labels = torch.randint(classes, (samples,), generator=rng)
    logits = torch.randn(samples, classes, generator=rng)
    logits[torch.arange(samples), labels] += 2
    logits.requires_grad_()
    return lambda way: step(way, logits, labels)


def slice_over_ranks(entries: int, curve: str) -> Step:
    """A tenth of the entries is chosen; the sum of y * y stands for a loss."""
    x = torch.randn(entries, generator=torch.Generator().manual_seed(dist.get_rank())).requires_grad_()
    size = dist.get_world_size()

    def run(way: str) -> None:
        x.grad = None
        if way == "gather":
            parts = [torch.empty_like(x) for _ in range(size)]
            dist.all_gather(parts, x.detach())
            parts[dist.get_rank()] = x
            y = soft_topk(torch.cat(parts), entries * size / 10, 0.1, curve=curve)
        elif way == "group":
            y = soft_topk(x, entries * size / 10, 0.1, curve=curve, group=True)
        else:
            y = soft_topk(x, entries / 10, 0.1, curve=curve)
        y.square().sum().backward()

    return run


def measure(step: Step, ways: list[str], rounds: int) -> dict[str, tuple[float, int, float]]:
    """Bytes, collectives and the median time, for every way."""
    traffic = {}
    for way in ways:
        with Traffic() as seen:
            step(way)
        traffic[way] = (seen.bytes, seen.calls)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            dist.barrier()
            start = time.perf_counter()
            step(way)
            times[way].append(slowest(time.perf_counter() - start))
    return {way: (*traffic[way], statistics.median(times[way])) for way in ways}


def table(rank: int, size: int, store: str, rounds: int, cases: list[tuple[int, int]] | list[tuple[int, str]]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    for count, of in cases:
        if isinstance(of, str):
            found = measure(slice_over_ranks(count, of), OF_A_SLICE, rounds)
        else:
            found = measure(batch(count, of), WAYS, rounds)
        if rank == 0:
            (gathered, gathers, gather), (searched, searches, search), (_, _, alone) = found.values()
            what = f"{count:,}, {of}" if isinstance(of, str) else f"{count} x {of}"
            cells = [f"{size}", what, f"{gathered / 1e3:,.1f}", f"{searched / 1e3:,.1f}"]
            cells += [f"{gathers}", f"{searches}", *(f"{1e3 * seconds:.2f}" for seconds in (gather, search, alone))]
            print(f"| {' | '.join(cells)} |", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--quick", action="store_true", help="the smallest case alone, to see that it runs")
    parser.add_argument("--slices", action="store_true", help="soft_topk of a slice that lies over the ranks")
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    print(f"torch {torch.__version__}, gloo, float32, {machine}; medians of {options.rounds}\n")
    ways, what = (OF_A_SLICE, "a rank's entries, curve") if options.slices else (WAYS, "a rank's logits")
    names = ["ranks", what, *(f"{unit} {way}" for unit in ("kB", "calls", "ms") for way in ways[:2])]
    print(f"| {' | '.join([*names, 'ms alone'])} |\n|{' --- |' * 9}", flush=True)
    for size in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            of_slices = [(entries, curve) for curve in ("ramp", "logistic") for entries in ENTRIES]
            every = of_slices if options.slices else CASES
            cases = every[:1] if options.quick else every
            arguments = (size, str(Path(folder) / "store"), options.rounds, cases)
            torch.multiprocessing.spawn(table, args=arguments, nprocs=size)


if __name__ == "__main__":
    main()
