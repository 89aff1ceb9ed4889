"""The operator and the loss of another checkout against this one's, in turn.

Run with `python -m benchmarks.compare ../before/.venv/bin/python`: the interpreter of an environment in which the other
version is installed. Each version runs in its own process; the two are asked in turn, so that a busy moment hits them
alike. Several pairs of processes take part, because where the tensors of one lie in memory is luck. A ratio is the
median over all rounds of this version's time over the other's: below 1 this one is faster.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

OPERATOR = [((10, 128), 1), ((10, 8192), 1), ((8192, 10), 0), ((1024, 1000), 1), ((4096, 64), 1), ((4096, 128), 1)]
OPERATOR += [((4096, 16), 1), ((20000, 200), 0), ((1, 10**6), 1)]
LOSS = [(128, 10), (1024, 10), (8192, 10), (8192, 100), (4096, 1000)]


def questions(threads: list[int]) -> Iterator[dict[str, Any]]:
    for count in threads:
        for scale in (1, 10):
            for shape, dim in OPERATOR:
                for what in ("forward", "both"):
                    yield {"what": what, "shape": shape, "dim": dim, "scale": scale, "threads": count}
        for shape in LOSS:
            yield {"what": "loss", "shape": shape, "dim": 0, "scale": 1, "threads": count}


def answer(lines: TextIO) -> None:
    """Time what each line asks for; a line of the same question again reuses its tensors."""
    import torch

    from hypersimplex.torch import hypersimplex_loss, soft_binary_argmax

    asked: dict[str, Any] = {}
    for line in lines:
        question = json.loads(line)
        if question != asked:
            asked = question
            torch.set_num_threads(asked["threads"])
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(asked["shape"], generator=generator) * asked["scale"]
            v, wanted = torch.randn(asked["shape"], generator=generator), x.clone().requires_grad_()
            labels = torch.randint(asked["shape"][1], (asked["shape"][0],), generator=generator)
            k, dim = asked["shape"][asked["dim"]] / 10, asked["dim"]
            steps = {
                "forward": lambda: soft_binary_argmax(x, k, dim=dim),  # noqa: B023
                "both": lambda: torch.autograd.grad(soft_binary_argmax(wanted, k, dim=dim), wanted, v),  # noqa: B023
                "loss": lambda: torch.autograd.grad(hypersimplex_loss(wanted, labels), wanted),  # noqa: B023
            }
            step = steps[asked["what"]]
            step()
            begin = time.perf_counter()
            step()
            calls = max(1, min(200, int(5e-3 / max(time.perf_counter() - begin, 1e-7))))
        for _ in range(calls // 10 + 1):  # after the other's turn caches are cold
            step()
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        print((time.perf_counter() - begin) / calls, flush=True)


class Version:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def seconds(self, question: dict[str, Any]) -> float:
        print(json.dumps(question), file=cast(TextIO, self.process.stdin), flush=True)
        seconds = float(cast(TextIO, self.process.stdout).readline())
        if question["threads"] > 1:
            time.sleep(0.02)  # threads of OpenMP spin for some milliseconds and would be in the other's way
        return seconds


@contextmanager
def version(python: str) -> Iterator[Version]:
    command = [python, "-I", __file__, "--answer"]  # not with this folder on the path: its operator.py is not Python's
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Version(process)
        cast(TextIO, process.stdin).close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("other", nargs="?", help="the interpreter of the other version's environment")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads (default: 1 2)")
    parser.add_argument("--processes", type=int, default=7, help="of each version (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of a row for each (default: %(default)s)")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        return answer(sys.stdin)
    if not options.other:
        parser.error("name the interpreter of the other version's environment")
    asked = list(questions(options.threads))
    found: list[list[tuple[float, float]]] = [[] for _ in asked]
    for number in range(options.processes):
        print(f"pair of processes {number + 1} of {options.processes}", file=sys.stderr, flush=True)
        with version(options.other) as other, version(sys.executable) as this:
            for question, rounds in zip(asked, found, strict=True):
                rounds += [(other.seconds(question), this.seconds(question)) for _ in range(options.rounds)]
    print(f"{'threads':>7}  {'x':>9}  {'shape':>12}  dim  {'what':>8}  {'other us':>10}  {'this us':>10}  this / other")
    for question, rounds in zip(asked, found, strict=True):
        before, now = (statistics.median(column) * 1e6 for column in zip(*rounds, strict=True))
        ratio = statistics.median(b / a for a, b in rounds)
        scale, shape = question["scale"], "x".join(map(str, question["shape"]))
        print(
            f"{question['threads']:>7}  {'N(0,1)' if scale == 1 else f'{scale} N(0,1)':>9}  {shape:>12}  "
            f"{question['dim']:>3}  {question['what']:>8}  {before:>10.1f}  {now:>10.1f}  {ratio:>12.3f}"
        )


if __name__ == "__main__":
    main()
