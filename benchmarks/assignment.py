"""soft_assignment: steps, violation and time against one projection; and beside solvers of the transport problem.

Run with `python -m benchmarks.assignment`. `--peers` adds jaxopt's projection_transport and POT's smooth transport
where they are installed; with `OPENBLAS_NUM_THREADS=1`, or POT's solver takes all processors. Scores are normal with a
ramp of three standard deviations over the experts; capacities are the equal shares. The time is that of the processor
on one thread, forward and backward, as a multiple of soft_binary_argmax's in the same round.
"""

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks import timing
from hypersimplex import _assignment
from hypersimplex._numpy_assignment import MemoryRows
from hypersimplex.torch import binary_argmax, soft_assignment, soft_binary_argmax

PROBLEMS = [(4096, 64, 8), (8192, 8, 2), (16384, 128, 8), (4096, 256, 8)]
TAUS = [0.02, 0.05, 0.2, 1.0, 2.0]
PEER_PROBLEMS = [
    (512, 16, 0.5),
    (4096, 64, 0.5),
]  # tokens, experts, tau; k is 1, where a transport plan is an assignment


def scores(tokens: int, experts: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, experts, generator=rng) + torch.linspace(0, 3, experts)


def steps(tokens: int, experts: int, k: int, tau: float) -> tuple[int, int, float]:
    """Steps from nothing and from the batch before, and the largest violation of a column's sum."""
    capacity = np.full(experts, tokens * k / experts)
    bias, counts, worst = np.zeros(experts), [], 0.0
    for seed in (0, 1):
        rows = MemoryRows(scores(tokens, experts, seed).numpy(), k, None, tau, torch.get_num_threads(), "axis -1")
        found = _assignment.find(rows, capacity, bias)
        worst = max(worst, float(np.abs(rows.y.sum(0, dtype=np.float64) / capacity - 1).max()))
        bias = found.bias
        counts.append(found.steps)
    return counts[0], counts[1], worst


def assignment(x: Tensor, k: float, capacity: float, tau: float) -> Tensor:
    return soft_assignment(x, k, capacity, tau)[0]


def overload(y: Tensor) -> float:
    return 100 * float(y.sum(0).max() / y.sum(0).mean() - 1)


def both_ways(function: Callable[[Tensor], Tensor], x: Tensor) -> timing.Step:
    leaf = x.clone().requires_grad_()
    v = torch.randn_like(x)

    def step() -> None:
        leaf.grad = None
        function(leaf).backward(v)

    return step


def processor_times(ways: Mapping[str, timing.Step], rounds: int, seconds: float = 0.0) -> timing.Times:
    """As timing.interleave, by the processor's clock: a busy machine interrupts long calls, and short ones seldom.

    A turn is one call, or as many as take so many seconds.
    """
    times: timing.Times = {name: [] for name in ways}
    calls = {name: timing.calls_for(step, seconds) if seconds else 1 for name, step in ways.items()}
    for turn in range(rounds + 1):
        for name, step in ways.items():
            begin = time.process_time()
            for _ in range(calls[name]):
                step()
            times[name] += [(time.process_time() - begin) / calls[name]] if turn else []
    return times


def table(rounds: int, taus: list[float]) -> None:
    print(
        "| tokens, experts, k | tau | steps | from the last batch | violation | time | overload of top-k | of x - b |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for tokens, experts, k in PROBLEMS:
        x, capacity = scores(tokens, experts), tokens * k / experts
        for tau in taus:
            cold, warm, worst = steps(tokens, experts, k, tau)
            ways = {
                "one": both_ways(partial(soft_binary_argmax, k=k, tau=tau), x),
                "all": both_ways(partial(assignment, k=k, capacity=capacity, tau=tau), x),
            }
            ratio = timing.ratio(processor_times(ways, rounds), "all", "one")
            bias = soft_assignment(x, k, capacity, tau)[1]
            hard, plain = overload(binary_argmax(x - bias, k)), overload(binary_argmax(x, k))
            numbers = f"{cold} | {warm} | {worst:.0e} | {ratio:.1f} x | {plain:.0f} % | {hard:.1f} %"
            print(f"| {tokens}, {experts}, {k} | {tau} | {numbers} |", flush=True)


def peers(x: Tensor, tau: float) -> dict[str, Callable[[], np.ndarray]]:
    """Transport plans with rows of sum 1 and equal columns, by those that are installed."""
    tokens, experts = x.shape
    row, column = np.ones(tokens), np.full(experts, tokens / experts)
    found: dict[str, Callable[[], np.ndarray]] = {
        "hypersimplex": lambda: soft_assignment(x, 1, tokens / experts, tau)[0].numpy()
    }
    if importlib.util.find_spec("jaxopt"):
        jax, projection = importlib.import_module("jax"), importlib.import_module("jaxopt.projection")
        transport = jax.jit(lambda s: projection.projection_transport(s, (row, column), use_semi_dual=True))
        found["jaxopt projection_transport, jit"] = lambda: np.asarray(transport(x.numpy() / tau))
    if importlib.util.find_spec("ot"):
        smooth = importlib.import_module("ot.smooth")
        cost = -x.numpy().astype(np.float64)
        found["POT smooth_ot_semi_dual"] = lambda: smooth.smooth_ot_semi_dual(
            row, column, cost, tau, reg_type="l2", stopThr=1e-9, numItermax=2000
        )
    return found


def beside_peers(tokens: int, experts: int, tau: float, rounds: int) -> None:
    x = scores(tokens, experts)
    ways = peers(x, tau)
    exact = soft_assignment(x.double(), 1, tokens / experts, tau)[0].numpy()
    times = processor_times(ways, rounds)
    print(f"\n{tokens} tokens, {experts} experts, k = 1, tau = {tau}, forward:\n")
    print("| solver | time | distance | violation |")
    print("| --- | --- | --- | --- |")
    for name, solve in ways.items():
        y = solve()
        distance, missed = np.abs(y - exact).max(), np.abs(y.sum(0) / (tokens / experts) - 1).max()
        print(
            f"| {name} | {timing.ratio(times, name, 'hypersimplex'):.1f} x | {distance:.0e} | {missed:.0e} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tau", type=float, nargs="*", default=TAUS)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table(options.rounds, options.tau)
    if options.peers:
        for problem in PEER_PROBLEMS:
            beside_peers(*problem, options.rounds)


if __name__ == "__main__":
    main()
