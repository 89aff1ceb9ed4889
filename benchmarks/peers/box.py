"""Box sections beside jaxopt's bisection and cvxpylayers' solver: forward, and forward with the gradient.

    python -m benchmarks.peers.box [--rounds 20]

Rows of random scores, bounds, weights and totals. JAX functions are compiled by jax.jit, jaxopt's under jax.vmap. Peers
that are not installed are left out; optax has no box section with weights.
"""

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.timing import calls_for, interleave, microseconds

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
    return lambda: run(x, *rest).sum().backward() if backward else run(x, *rest)


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
    x, total, lower, upper, weight = (torch.from_numpy(v[0]) for v in given)
    if given[0].size > MOST_FOR_A_SOLVER:
        raise ValueError("too slow at this size")
    at, y = cvxpy.Parameter(len(x)), cvxpy.Variable(len(x))
    rules = [y >= lower.numpy(), y <= upper.numpy(), weight.numpy() @ y == float(total)]
    goal = cvxpy.Minimize(cvxpy.sum_squares(y) / 2 - at @ y)
    layer = layers.CvxpyLayer(cvxpy.Problem(goal, rules), parameters=[at], variables=[y])
    x.requires_grad_(backward)
    return lambda: layer(x)[0].sum().backward() if backward else layer(x)[0]


PEERS = {
    "hypersimplex.torch": in_torch,
    "hypersimplex.jax": in_jax,
    "jaxopt projection_box_section": jaxopt,
    "cvxpylayers": cvxpylayers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
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
            calls = {name: calls_for(step) for name, step in steps.items()}
            times = interleave(steps, rounds, calls, seldom=[name for name in steps if name == "cvxpylayers"])
            cells = (f"{microseconds(times, name):.0f} µs" if name in steps else "-" for name in PEERS)
            print(
                f"| {shape[0]} x {shape[1]} | {'with gradient' if backward else 'forward'} | "
                + " | ".join(cells)
                + " |"
            )


if __name__ == "__main__":
    main()
