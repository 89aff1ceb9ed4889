"""Box sections beside jaxopt's bisection and cvxpylayers' solver: forward, and forward with the gradient.

    python -m benchmarks.peers.box [--rounds 20]

Rows of random scores, bounds, weights and totals. JAX functions are compiled by jax.jit, jaxopt's under jax.vmap. Peers
that are not installed are left out; optax has no box section with weights. Times are the processor's, medians over
rounds in which the functions take turns; a turn of a short function is many calls. In brackets: how many times as long
jaxopt takes.
"""

import argparse
import importlib
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

from benchmarks.assignment import processor_times
from benchmarks.timing import Times, microseconds, ratio

SHAPES = ((1, 1000), (64, 1000), (1024, 64), (1, 100_000))
MOST_FOR_A_SOLVER = 1000  # entries in all


def problem(rows: int, n: int) -> list[Any]:
    rng = np.random.default_rng(0)
    x, lower = rng.normal(size=(rows, n)), rng.uniform(-1, 0, (rows, n))
    upper, weight = rng.uniform(0.5, 1, (rows, n)), rng.uniform(0.5, 2, (rows, n))
    return [v.astype(np.float32) for v in (x, np.full(rows, 0.1 * n), lower, upper, weight)]


def in_torch(given: list[Any], backward: bool) -> Callable[[], object]:
    from hypersimplex.torch import box_section

    x, *rest = (torch.from_numpy(v) for v in given)
    x.requires_grad_(backward)
    run: Any = box_section
    return lambda: torch.autograd.grad(run(x, *rest).sum(), x) if backward else run(x, *rest)


def _compiled(box: Callable[..., Any], given: list[Any], backward: bool) -> Callable[[], object]:
    jax = importlib.import_module("jax")
    arrays = [jax.numpy.asarray(v) for v in given]
    run = jax.jit(jax.grad(lambda x, *rest: box(x, *rest).sum()) if backward else box)
    return lambda: run(*arrays).block_until_ready()


def in_jax(given: list[Any], backward: bool) -> Callable[[], object]:
    return _compiled(importlib.import_module("hypersimplex.jax").box_section, given, backward)


def jaxopt(given: list[Any], backward: bool) -> Callable[[], object]:
    jax, projection = importlib.import_module("jax"), importlib.import_module("jaxopt.projection")

    def box(x: Any, total: Any, lower: Any, upper: Any, weight: Any) -> Any:
        row = lambda x, c, a, b, w: projection.projection_box_section(x, (a, b, w, c))  # noqa: E731
        return jax.vmap(row)(x, total, lower, upper, weight)

    return _compiled(box, given, backward)


def cvxpylayers(given: list[Any], backward: bool) -> Callable[[], object]:
    cvxpy, layers = importlib.import_module("cvxpy"), importlib.import_module("cvxpylayers.torch")
    if given[0].size > MOST_FOR_A_SOLVER:
        raise ValueError("too slow at this size")
    x, total, lower, upper, weight = (torch.as_tensor(v[0]) for v in given)
    at, y = cvxpy.Parameter(len(x)), cvxpy.Variable(len(x))
    rules = [y >= lower.numpy(), y <= upper.numpy(), weight.numpy() @ y == float(total)]
    goal = cvxpy.Minimize(cvxpy.sum_squares(y) / 2 - at @ y)
    layer = layers.CvxpyLayer(cvxpy.Problem(goal, rules), parameters=[at], variables=[y])
    x.requires_grad_(backward)
    return lambda: layer(x)[0].sum().backward() if backward else layer(x)[0]


OURS, JAXOPT = ("hypersimplex.torch", "hypersimplex.jax"), "jaxopt projection_box_section"
PEERS = {
    "hypersimplex.torch": in_torch,
    "hypersimplex.jax": in_jax,
    JAXOPT: jaxopt,
    "cvxpylayers": cvxpylayers,
}


def _cell(times: Times, name: str) -> str:
    """Microseconds, and for ours how many times as long jaxopt takes."""
    text = f"{microseconds(times, name):.0f} µs"
    return f"{text} ({ratio(times, JAXOPT, name):.1f})" if name in OURS and JAXOPT in times else text


def table(rounds: int) -> None:
    print("| rows x entries | step | " + " | ".join(PEERS) + " |\n| --- | --- |" + " ---: |" * len(PEERS))
    for shape in SHAPES:
        for backward in (False, True):
            steps = {}
            for name, make in PEERS.items():
                try:
                    steps[name] = make(problem(*shape), backward)
                    steps[name]()
                except (ImportError, ValueError):
                    steps.pop(name, None)
            times = processor_times(steps, rounds, seconds=4e-3)
            cells = [_cell(times, name) if name in steps else "-" for name in PEERS]
            way = "with gradient" if backward else "forward"
            print(f"| {shape[0]} x {shape[1]} | {way} | " + " | ".join(cells) + " |", flush=True)


def issue_205() -> None:
    """0 <= y <= 0.002, sum 1, n = 1000, ten times: within bounds by 1e-6, on the sum by 1e-5, and twice the same."""
    one = np.ones((1, 1000), np.float32)
    print("\n| the problem of cvxpylayers' issue 205 | right | largest y - 0.002 | largest distance of the sum |")
    print("| --- | ---: | ---: | ---: |")
    for name in ("hypersimplex.torch", "cvxpylayers"):
        right, over, missed = 0, 0.0, 0.0
        for seed in range(10):
            x = np.random.default_rng(seed).normal(size=(1, 1000)).astype(np.float32)
            try:
                solve = PEERS[name]([x, np.ones(1, np.float32), 0 * one, 0.002 * one, one], False)
                runs = [np.ravel(cast("Any", solve()).numpy()).astype(np.float64) for _ in range(2)]
            except ImportError:
                break
            beyond, off = max(-runs[0].min(), runs[0].max() - 0.002), abs(runs[0].sum() - 1)
            over, missed = max(over, beyond), max(missed, off)
            right += beyond < 1e-6 and off < 1e-5 and bool((runs[0] == runs[1]).all())
        else:
            print(f"| {name} | {right} of 10 | {over:.0e} | {missed:.0e} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    table(parser.parse_args().rounds)
    issue_205()


if __name__ == "__main__":
    main()
