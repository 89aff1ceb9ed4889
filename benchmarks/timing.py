"""What the benchmarks share: steps timed in turn, medians, ratios, tables, and a line about the machine."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

Step = Callable[[], object]
Times = dict[str, list[float]]


def interleave(
    steps: Mapping[str, Step],
    rounds: int,
    calls: int | Mapping[str, int] = 1,
    *,
    seldom: Collection[str] = (),
    sync: Callable[[], None] = lambda: None,
) -> Times:
    """Seconds for one call of every step, in every round.

    The steps of a round follow each other, so that a busy moment hits them alike, and each round begins with another
    one. Steps named in `seldom` take part in every fifth round only.
    """
    times: Times = {name: [] for name in steps}
    for step in steps.values():
        step()
    for turn in range(rounds):
        names = [name for name in steps if turn % 5 == 0 or name not in seldom]
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            sync()
            repeats = calls if isinstance(calls, int) else calls[name]
            begin = time.perf_counter()
            for _ in range(repeats):
                steps[name]()
            sync()
            times[name].append((time.perf_counter() - begin) / repeats)
    return times


def microseconds(times: Times, name: str) -> float:
    return statistics.median(times[name]) * 1e6


def ratio(times: Times, name: str, base: str) -> float:
    """The median over the rounds of name's time over base's; of their medians if one was timed seldom."""
    if len(times[name]) != len(times[base]):
        return statistics.median(times[name]) / statistics.median(times[base])
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def calls_for(step: Step, seconds: float = 1e-3, most: int = 100) -> int:
    """How many calls of the step take about so long: short ones are timed by the dozen."""
    step()
    begin = time.perf_counter()
    step()
    return max(1, min(most, int(seconds / max(time.perf_counter() - begin, 1e-7))))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch, and with it the kernel, on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def machine() -> str:
    """What a figure depends on besides the code."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{processor()}, {os.cpu_count()} processors{load}, torch {torch.__version__}"


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool = False) -> str:
    """Columns of equal width, or a table in Markdown."""
    if markdown:
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in [header, *rows]
    )
