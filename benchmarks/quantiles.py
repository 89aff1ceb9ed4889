"""Quantiles and the bias of Quantile Balancing: `threshold` beside torch.quantile, torch.kthvalue, torch.topk and bins.

Run with `python -m benchmarks.quantiles`. One thread, normal numbers, the processor's time, medians of ratios over
rounds in which the ways take turns; memory is the peak above the input, each in a process of its own. "histogram" is
1,000 bins from the smallest to the largest value of the column, with a straight line inside the bin.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks import memory, timing
from benchmarks.assignment import processor_times
from hypersimplex.torch import threshold

Q, TAU, BINS = 0.9, 1e-4, 1000
SIZES = (2**12, 2**20, 2**24, 2**25)
ROUTERS = ((4096, 64, 8), (16384, 128, 8), (32768, 256, 8))  # tokens, experts, k
WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "threshold": lambda x: threshold(x, len(x) - Q * len(x), TAU),
    "torch.quantile": lambda x: torch.quantile(x, Q),
    "torch.kthvalue": lambda x: torch.kthvalue(x, int(Q * len(x))).values,
}
LIMITS = {"torch.quantile": 2**24}


def histogram(need: Tensor, share: float) -> Tensor:
    """The quantile of every column, by counting into bins."""
    low, high = need.amin(0), need.amax(0)
    width = (high - low) / BINS
    place = ((need - low) / width).long().clamp(max=BINS - 1) + BINS * torch.arange(need.shape[1])
    counts = torch.bincount(place.flatten(), minlength=BINS * need.shape[1]).view(-1, BINS)
    below = counts.cumsum(1)
    wanted = share * len(need)
    found = (below < wanted).sum(1).clamp(max=BINS - 1)
    inside, all_below = (values.gather(1, found[:, None]).squeeze(1) for values in (counts, below))
    return low + width * (found + 1 - (all_below - wanted) / inside.clamp(min=1))


def column_ways(scores: Tensor, k: int) -> tuple[dict[str, Callable[[], Tensor]], Tensor]:
    """Ways to the quantile of cut - score at k / experts for each expert, and the right one."""
    cut = scores.topk(k + 1, -1).values[:, -1:]
    need, above, share = cut - scores, scores - cut, k / scores.shape[1]
    ways: dict[str, Callable[[], Tensor]] = {
        "threshold": lambda: -threshold(above, share * len(above), TAU, dim=0),
        "torch.quantile": lambda: torch.quantile(need, share, dim=0),
        "torch.topk": lambda: need.topk(round(share * len(need)), 0, largest=False).values[-1],
        "histogram": lambda: histogram(need, share),
    }
    return ways, torch.quantile(need.double(), share, dim=0, interpolation="midpoint")


def _peak(name: str, size: int) -> int:
    torch.set_num_threads(1)
    x = torch.randn(size)
    WHOLE[name](x[:100])
    return memory.peak_bytes(partial(WHOLE[name], x))


def whole(rounds: int) -> str:
    rows = []
    for size in SIZES:
        x = torch.randn(size, generator=torch.Generator().manual_seed(0))
        steps = {name: partial(way, x) for name, way in WHOLE.items() if size <= LIMITS.get(name, size)}
        times = processor_times(steps, rounds, 1e-3)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            peaks = {name: pool.apply(_peak, (name, size)) / x.nbytes for name in steps if size == 2**24}
        cells = []
        for name in WHOLE:
            cell = f"{timing.ratio(times, name, 'threshold'):.1f} x" if name in steps else "refused"
            cells.append(cell + (f", {peaks[name]:.1f}" if name in peaks else ""))
        rows.append([f"{size:,}", f"{timing.microseconds(times, 'threshold') / 1e3:.2f} ms", *cells])
    return timing.table(["entries", "threshold takes", *WHOLE], rows, markdown=True)


def routers(rounds: int) -> str:
    rows = []
    for tokens, experts, k in ROUTERS:
        x = torch.randn(tokens, experts, generator=torch.Generator().manual_seed(0)) + torch.linspace(0, 3, experts)
        ways, right = column_ways(x.sigmoid(), k)
        times = processor_times(ways, rounds, 1e-3)
        wrong = {name: float((way() - right).abs().max()) for name, way in ways.items()}
        cells = [f"{timing.ratio(times, name, 'threshold'):.1f} x, {wrong[name]:.0e}" for name in ways]
        took = f"{timing.microseconds(times, 'threshold') / 1e3:.2f} ms"
        rows.append([f"{tokens:,} x {experts}, k = {k}", took, *cells])
    return timing.table(["tokens x experts", "threshold takes", *ways], rows, markdown=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with timing.threads(1):
        print("One quantile: time as a multiple of threshold's, memory as a multiple of the input\n")
        print(whole(options.rounds), flush=True)
        print("\nA bias for each expert: time as a multiple of threshold's, and the largest error\n")
        print(routers(options.rounds), flush=True)
    print(f"\n{timing.machine()}")


if __name__ == "__main__":
    main()
