"""A training step of the study on the paper's network: what its options gain, and what loading the data costs.

Run with `python -m benchmarks.study`. The ways to compute a step take turns, so that a busy moment hits them alike; the
table shows the median of the rounds, and of every round's ratio to the plain step. The images are random.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch

from benchmarks import timing
from hypersimplex_study.config import RunConfig
from hypersimplex_study.samples import Data
from hypersimplex_study.train import Runtime, Training

PLAIN = "plain"
# Name of a way: its memory format, whether it is compiled, its precision.
WAYS = {
    PLAIN: (False, False, "float32"),
    "channels_last": (True, False, "float32"),
    "compile": (False, True, "float32"),
    "channels_last, compile": (True, True, "float32"),
    "channels_last, bfloat16": (True, False, "bfloat16"),
}
LOADING = "loading"
SHAPES = {"fashion-mnist": (28, 28, 1), "cifar-10": (32, 32, 3)}


def images(name: str, batch: int) -> Data:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (batch, *SHAPES[name]), dtype=np.uint8)
    y = np.arange(batch) % 10
    return Data(name, x, y, x[:10], y[:10], tuple("0123456789"), padding=4)


def steps(data: Data, width: int, batch: int, threads: int) -> dict[str, Callable[[], object]]:
    every: dict[str, Callable[[], object]] = {}
    rows = torch.arange(batch)
    for way, (channels_last, compiled, precision) in WAYS.items():
        config = RunConfig(
            dataset=data.name,
            network="paper",
            width=width,
            batch_size=batch,
            validation=0.0,
            augment=True,
            precision=precision,
        )
        training = Training(config, data, Runtime(threads=threads, channels_last=channels_last, compile=compiled))
        training.model.train()
        every[way] = lambda t=training: t.step(rows)  # type: ignore[misc]
        if way == PLAIN:
            every[LOADING] = lambda t=training: t.inputs(t.prepared.train, rows, augment=True)  # type: ignore[misc]
    return every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small batch of one set, few rounds")
    parser.add_argument("--images", action="append", choices=list(SHAPES), help="default: both")
    parser.add_argument("--width", action="append", type=int, help="of the network (default: 8 and 64)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a step (default: 1)")
    parser.add_argument("--batch", type=int, default=512, help="samples in a step (default: 512)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds (default: 9)")
    options = parser.parse_args()
    batch, rounds = (32, 2) if options.quick else (options.batch, options.rounds)
    print(timing.machine())
    print(f"\nSeconds of a step of {batch} samples on {options.threads} threads, and the ratio to the plain step\n")
    names = [PLAIN, LOADING, *(way for way in WAYS if way != PLAIN)]
    rows = []
    for data in options.images or list(SHAPES)[: 1 if options.quick else None]:
        for width in options.width or ((8,) if options.quick else (8, 64)):
            torch._dynamo.reset()
            times = timing.interleave(steps(images(data, batch), width, batch, options.threads), rounds)
            cells = [f"{timing.microseconds(times, n) / 1e6:.3f} ({timing.ratio(times, n, PLAIN):.3f})" for n in names]
            rows.append([data, str(width), *cells])
            print(f"  {data}, width {width}: done", flush=True)
    print()
    print(timing.table(["images", "width", *names], rows, markdown=True))


if __name__ == "__main__":
    main()
