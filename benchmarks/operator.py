"""The operator against torch.softmax and torch.sort on the same float32 tensor, with k = n/10.

Run with `python -m benchmarks.operator`. In every row the three take turns, so that a busy moment hits them alike. A
turn is some milliseconds of calls: a single one would get its memory as another has left it, warm or cold. A third of
the rounds each is for another place of the tensors in memory, as the allocator's luck is a tenth of some rows. A time
is the median of the rounds, a ratio the median of every round's ratio: below 1 the operator is faster. The column
"/ copy" compares forward with a plain copy of x into warm memory, the least that reading and writing takes. Then the
smooth curves, forward and backward, over softmax, and `exp` with k = 1, which is softmax. Then the memory that forward
and backward need besides the input and the incoming gradient, how time grows with the size, what small temperatures
and masks (every fifth entry -inf) cost, and what two threads take on a busy machine, with as many other busy processes
as there are processors. `--curves` prints the curves alone.
"""

import argparse
import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from functools import partial

import torch
from torch import Tensor

from benchmarks import timing
from benchmarks.cases import CASES, LARGE, Case, problem, size
from benchmarks.memory import peak_bytes
from hypersimplex.torch import soft_binary_argmax, soft_topk

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    threads: int
    x: str
    shape: str
    dim: int
    forward_us: float
    forward_over_softmax: float
    forward_over_sort: float
    forward_over_copy: float
    both_us: float
    both_over_softmax: float
    both_over_sort: float

    def cells(self) -> list[str]:
        return [f"{value:.3g}" if 0 < value < 99 else f"{value:.0f}" for value in astuple(self)[4:]]


PLACES = 3  # in memory, for the tensors of a row

HEADER = ["threads", "x", "shape", "dim", "forward us", "/ softmax", "/ sort", "/ copy"]
HEADER += ["and backward us", "/ softmax", "/ sort"]


def contenders(n: int, dim: int) -> dict[str, Function]:
    return {
        "operator": partial(soft_binary_argmax, k=n / 10, dim=dim),
        "softmax": partial(torch.softmax, dim=dim),
        "sort": lambda x: torch.sort(x, dim=dim).values,
    }


def both(function: Function, x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(function(x), x, v)


def measure(case: Case, scale: float, threads: int, rounds: int, device: str) -> Row:
    shape, dim = case
    forward: timing.Times = {}
    backward: timing.Times = {}
    kept = []
    with timing.threads(threads):
        for _ in range(PLACES):
            kept.append(problem(shape, scale, device))
            for times, steps in zip((forward, backward), steps_of(*kept[-1], dim), strict=True):
                calls = {name: timing.calls_for(step, seconds=5e-3) for name, step in steps.items()}
                some = timing.interleave(steps, -(-rounds // PLACES), calls, seldom=["sort"], sync=synchronize(device))
                for name in steps:
                    times.setdefault(name, []).extend(some[name])
    results = []
    for times in (forward, backward):
        results += [timing.microseconds(times, "operator")]
        results += [timing.ratio(times, "operator", base) for base in ("softmax", "sort", "copy") if base in times]
    return Row(threads, "N(0,1)" if scale == 1 else f"{scale:g} N(0,1)", size(shape), dim, *results)


def steps_of(x: Tensor, v: Tensor, dim: int) -> tuple[dict[str, timing.Step], dict[str, timing.Step]]:
    """What is timed: forward, and forward and backward."""
    functions, wanted, warm = contenders(x.shape[dim], dim), x.clone().requires_grad_(), torch.empty_like(x)
    forward: dict[str, timing.Step] = {name: partial(function, x) for name, function in functions.items()}
    forward["copy"] = partial(warm.copy_, x)
    return forward, {name: partial(both, function, wanted, v) for name, function in functions.items()}


def curve_lines(rounds: int, threads: int) -> Iterator[list[str]]:
    """Forward and backward of every smooth curve over softmax's."""
    for scale in (1, 10):
        for shape, dim in CASES + LARGE[:1]:
            n = shape[dim]
            functions: dict[str, Function] = {
                name: partial(soft_topk, k=n / 10, dim=dim, curve=name) for name in ("exp", "logistic", "laplace")
            }
            functions |= {
                "one": partial(soft_topk, k=1, dim=dim, curve="exp"),
                "softmax": partial(torch.softmax, dim=dim),
            }
            times: timing.Times = {}
            kept = []
            with timing.threads(threads):
                for _ in range(PLACES):
                    x, v = problem(shape, scale)
                    kept.append((x.requires_grad_(), v))
                    steps = {name: partial(both, function, x, v) for name, function in functions.items()}
                    calls = {name: timing.calls_for(step, seconds=5e-3) for name, step in steps.items()}
                    for name, seconds in timing.interleave(steps, -(-rounds // PLACES), calls).items():
                        times.setdefault(name, []).extend(seconds)
            ratios = [f"{timing.ratio(times, name, 'softmax'):.2f}" for name in functions if name != "softmax"]
            us = f"{timing.microseconds(times, 'softmax'):.0f}"
            yield [str(threads), "N(0,1)" if scale == 1 else "10 N(0,1)", size(shape), str(dim), us, *ratios]


def synchronize(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device.startswith("cuda") else lambda: None


@contextmanager
def busy_machine() -> Iterator[None]:
    """As many other busy processes as there are processors."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def busy_lines(rounds: int) -> Iterator[list[str]]:
    """Forward by one thread and by two in turn, on a busy machine."""

    def on(threads: int, x: Tensor) -> None:
        with timing.threads(threads):
            soft_binary_argmax(x, x.shape[1] / 10)

    for shape in ((4096, 64), (1024, 1000), (1, 10**6)):
        x, _ = problem(shape)
        with busy_machine():
            steps = {str(threads): partial(on, threads, x) for threads in (1, 2)}
            times = timing.interleave(steps, 5 * rounds, calls=5)
        us = [timing.microseconds(times, name) for name in steps]
        yield [size(shape), *(f"{each:.0f}" for each in us), f"{us[1] / us[0]:.2f}"]


SHORT_AND_LONG = ((32768, 8), (16384, 16), (4096, 64), (1024, 256), (1024, 1000))
TAUS = (1.0, 0.1, 0.01, 1e-3, 1e-4)


def harder_lines(rounds: int) -> Iterator[list[str]]:
    """Forward of rows of which every fifth entry is masked, and at small temperatures, over that without."""
    for shape in SHORT_AND_LONG:
        x, v = problem(shape)
        masked = x.masked_fill(v > 0.84, -torch.inf)
        masked[:, 0] = x[:, 0]
        steps = {str(tau): partial(soft_binary_argmax, x, shape[1] / 10, tau) for tau in TAUS}
        steps["masked"] = partial(soft_binary_argmax, masked, shape[1] / 10)
        with timing.threads(1):
            times = timing.interleave(steps, 2 * rounds, timing.calls_for(steps["1.0"]))
        ratios = [f"{timing.ratio(times, name, '1.0'):.2f}" for name in steps if name != "1.0"]
        yield [size(shape), f"{timing.microseconds(times, '1.0'):.0f}", *ratios]


def peak_memory(name: str, n: int) -> None:
    """Print the bytes that forward and backward of one function need. In a process of its own: peaks only rise."""
    x, v = problem((1, n))
    x.requires_grad_()
    both(contenders(1000, 1)[name], x[:, :1000].detach().requires_grad_(), v[:, :1000])
    print(peak_bytes(partial(both, contenders(n, 1)[name], x, v)))


def memory_lines() -> Iterator[list[str]]:
    for shape, _ in LARGE:
        line = [size(shape), f"{4 * shape[1] / 2**20:.0f}"]
        for name in contenders(shape[1], 1):
            command = [sys.executable, "-m", "benchmarks.operator", "--peak-memory", name, str(shape[1])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            line.append(f"{int(done.stdout) / 2**20:.0f}")
        yield line


def growth(rows: list[Row]) -> Iterator[str]:
    small, large = (size(shape) for shape, _ in LARGE)
    by_case = {(row.threads, row.x, row.shape): row.both_us for row in rows}
    for (threads, x, shape), us in by_case.items():
        if shape == large and (threads, x, small) in by_case:
            yield f"{us / by_case[threads, x, small]:.1f} x for {x} on {threads} thread{'s' if threads > 1 else ''}"


def print_curves(options: argparse.Namespace) -> None:
    print("\nForward and backward of the smooth curves, over softmax:\n")
    header = [*HEADER[:4], "softmax us", "exp", "logistic", "laplace", "exp, k = 1"]
    rounds = 3 if options.quick else options.rounds
    found = [line for threads in options.threads for line in curve_lines(rounds, threads)]
    print(timing.table(header, found, markdown=options.markdown))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator", description=__doc__)
    parser.add_argument("--device", default="cpu", help="a torch device (default: %(default)s)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads (default: 1 2)")
    parser.add_argument("--rounds", type=int, default=31, help="rounds of a row; the largest get fewer (default: 31)")
    parser.add_argument("--quick", action="store_true", help="few rounds, and none of the largest shapes")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--csv", metavar="FILE", help="write the rows to a file as well")
    parser.add_argument("--peak-memory", nargs=2, metavar=("NAME", "N"), help=argparse.SUPPRESS)
    parser.add_argument("--curves", action="store_true", help="the smooth curves alone")
    options = parser.parse_args()
    if options.curves:
        return print_curves(options)
    if options.peak_memory:
        return peak_memory(options.peak_memory[0], int(options.peak_memory[1]))

    cases = CASES if options.quick else CASES + LARGE
    print(timing.machine(), end="\n\n", flush=True)
    rows = []
    for threads in options.threads:
        for scale in (1, 10):
            for case in cases:
                rounds = 3 if options.quick else max(5, options.rounds // (3 if case in LARGE else 1))
                rows.append(measure(case, scale, threads, rounds, options.device))
    lines = [[str(row.threads), row.x, row.shape, str(row.dim), *row.cells()] for row in rows]
    print(timing.table(HEADER, lines, markdown=options.markdown))
    if not options.quick and options.device == "cpu":
        header = ["shape", "x itself, MB", *(f"{name}, MB" for name in contenders(1, 1))]
        print("\nPeak memory of forward and backward besides x and the incoming gradient:\n")
        print(timing.table(header, list(memory_lines()), markdown=options.markdown))
    if options.device == "cpu":
        print_curves(options)
    if not options.quick:
        print("\nForward and backward, from 10^6 to 10^7 entries: " + "; ".join(growth(rows)))
    if options.device == "cpu":
        rounds = 3 if options.quick else options.rounds
        print("\nForward with a small tau or with masks, over tau = 1 without, one thread:\n")
        header = ["shape", "tau = 1, us", *(f"tau = {tau:g}" for tau in TAUS[1:]), "masked"]
        print(timing.table(header, list(harder_lines(rounds)), markdown=options.markdown))
        print("\nForward beside as many busy processes as there are processors:\n")
        header = ["shape", "1 thread, us", "2 threads, us", "2 threads / 1"]
        print(timing.table(header, list(busy_lines(rounds)), markdown=options.markdown))
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows([[field.name for field in fields(Row)], *map(astuple, rows)])


if __name__ == "__main__":
    main()
