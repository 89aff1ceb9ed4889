"""Forward and backward under jit on the CPU: the operator against softmax, sort, and jaxopt's projection if installed.

    python -m benchmarks.jax

All functions of a row are timed in turn, again and again, and medians are compared: what else the machine does then
falls on all of them alike.
"""

import argparse
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import hypersimplex.jax as hsj

SHAPES = ((10, 128), (10, 8192), (1024, 1000), (1, 1_000_000))


def contenders(k):
    yield "hypersimplex", lambda x: hsj.soft_binary_argmax(x, k)
    yield "softmax", jax.nn.softmax
    yield "sort", jnp.sort
    try:
        from jaxopt.projection import projection_box_section
    except ImportError:
        return

    def peer(row):
        ones = jnp.ones_like(row)
        return projection_box_section(row, (jnp.zeros_like(row), ones, ones, float(k)))

    yield "jaxopt", jax.vmap(peer)


def both_ways(function):
    @jax.jit
    def run(x, v):
        y, pull = jax.vjp(function, x)
        return y, pull(v)

    return run


def medians(calls, seconds):
    for call in calls.values():
        jax.block_until_ready(call())
    times = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["hypersimplex"]) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) * 1e6 for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="for each row")
    parser.add_argument("--without", nargs="*", default=[], help="contenders to leave out: sort, jaxopt")
    args = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].platform}, float32, forward and backward, k = n/10")
    for shape in SHAPES:
        for scale in (1, 10):
            rng = np.random.default_rng(0)
            x, v = (jnp.asarray(s * rng.normal(size=shape), jnp.float32) for s in (scale, 1))
            calls = {
                name: partial(both_ways(function), x, v)
                for name, function in contenders(shape[-1] // 10)
                if name not in args.without
            }
            us = medians(calls, args.seconds)
            ratios = ", ".join(
                f"{us['hypersimplex'] / t:.2f} x {name}" for name, t in us.items() if name != "hypersimplex"
            )
            print(f"{shape!s:>14} {scale:>2} N(0,1) {us['hypersimplex']:>10.0f} us = {ratios}", flush=True)


if __name__ == "__main__":
    main()
