"""Forward and backward on the CPU: the operator under jit against torch's front end, softmax, sort, and jaxopt.

    python -m benchmarks.jax

Torch's front end runs in a process of its own, so that neither framework's threads are in the other's way. All
functions of a row are timed in turn, again and again, and medians are compared: what else the machine does then falls
on all of them alike.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from functools import partial

import numpy as np

SHAPES = ((10, 128), (10, 8192), (1024, 1000), (1, 1_000_000))
OURS = "hypersimplex"
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def problem(shape, scale):
    rng = np.random.default_rng(0)
    return (np.asarray(s * rng.normal(size=shape), np.float32) for s in (scale, 1))


def timed(call, clock):
    start = CLOCKS[clock]()
    call()
    return CLOCKS[clock]() - start


def serve_torch(pipe, threads, clock):
    """Time torch's front end once for every (shape, scale) that arrives."""
    import torch

    from hypersimplex.torch import soft_binary_argmax

    torch.set_num_threads(threads)
    calls = {}
    while (row := pipe.recv()) is not None:
        if row not in calls:
            x, v = (torch.from_numpy(a) for a in problem(*row))
            x.requires_grad_()

            def call(x=x, v=v, k=row[0][-1] // 10):
                y = soft_binary_argmax(x, k)
                return y, torch.autograd.grad(y, x, v)

            calls[row] = call
            call()
        pipe.send(timed(calls[row], clock))


def contenders(k):
    import jax
    import jax.numpy as jnp

    import hypersimplex.jax as hsj

    yield OURS, lambda x: hsj.soft_binary_argmax(x, k)
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


def both_ways(function, x, v):
    import jax

    @jax.jit
    def run(x, v):
        y, pull = jax.vjp(function, x)
        return y, pull(v)

    return lambda: jax.block_until_ready(run(x, v))


def medians(timers, seconds):
    for timer in timers.values():
        timer()
    times = {name: [] for name in timers}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[OURS]) < 5:
        for name, timer in timers.items():
            times[name].append(timer())
    return {name: statistics.median(t) * 1e6 for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="for each row")
    parser.add_argument("--without", nargs="*", default=[], help="contenders to leave out: torch, sort, jaxopt")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for the operator, here and in torch")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: for one thread on a busy machine")
    args = parser.parse_args()
    os.environ["HYPERSIMPLEX_NUM_THREADS"] = str(args.threads)
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe()
    torch_process = context.Process(target=serve_torch, args=(end, args.threads, args.clock), daemon=True)
    torch_process.start()

    import jax

    def ask_torch(row):
        pipe.send(row)
        return pipe.recv()

    setting = f"{jax.devices()[0].platform}, {args.threads} threads, {args.clock} time"
    print(f"jax {jax.__version__}, {setting}, float32, forward and backward, k = n/10")
    for row in ((shape, scale) for shape in SHAPES for scale in (1, 10)):
        x, v = (jax.numpy.asarray(a) for a in problem(*row))
        timers = {name: partial(timed, both_ways(f, x, v), args.clock) for name, f in contenders(row[0][-1] // 10)}
        timers["torch"] = partial(ask_torch, row)
        us = medians({name: timer for name, timer in timers.items() if name not in args.without}, args.seconds)
        ratios = ", ".join(f"{us[OURS] / t:.2f} x {name}" for name, t in us.items() if name != OURS)
        print(f"{row[0]!s:>14} {row[1]:>2} N(0,1) {us[OURS]:>10.0f} us = {ratios}", flush=True)
    pipe.send(None)
    torch_process.join()


if __name__ == "__main__":
    main()
