"""Problems at the kernel's boundaries, in a process of its own: `python -m tests.kernel.sweep --help`.

HYPERSIMPLEX_SIMD chooses the instruction set. Every problem is solved on 1, 2 and 3 threads; then those large enough
for threads again, from several Python threads at once and in a forked child. The last line counts the problems; each
that failed has a line above it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import torch

from hypersimplex import _kernel
from tests.kernel import checks, curves, shapes


def solve_again(problem, first, threads: int | None = None) -> str | None:
    if threads:
        torch.set_num_threads(threads)  # a setting of each Python thread
    given = checks.numbers(problem)
    try:
        found = checks.operate(problem, given) + checks.lose(checks.loss_problem(problem, given))
        checks.same_bits("others at the same time", found, first)
    except AssertionError as error:
        return f"FAILED {problem}: {error}"
    return None


def at_once(solved) -> list[str]:
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(solve_again, problem, first, 2) for problem, first in solved for _ in range(2)]
        return [line for job in jobs if (line := job.result())]


def after_fork(solved) -> list[str]:
    """In a child, where no thread of this process lives on. Torch's own operations hang there if they use threads."""
    sys.stdout.flush()
    torch.set_num_threads(1)
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return [f"FAILED after fork: the child ended with {status}"] if status else []
    signal.alarm(120)  # a child that hangs is ended
    torch.get_num_threads = lambda: 3
    bad = [line for problem, first in solved if (line := solve_again(problem, first))]
    print(*(f"after fork: {line}" for line in bad), sep="\n", flush=True)
    os._exit(1 if bad else 0)


def run(problems: Iterable, deadline: float, most: int) -> tuple[int, list[str]]:
    number, bad, threaded, latest = 0, [], [], []
    for problem in problems:
        if time.monotonic() > deadline or len(bad) >= most:
            break
        number += 1
        try:
            first = checks.check(problem)
            curves.check(problem, checks.numbers(problem))
        except AssertionError as error:
            bad.append(f"FAILED {problem}: {error}")
            continue
        if problem.n * problem.slices >= _kernel.constants()["parallel_worth"]:
            threaded.append((problem, first))
        if len(threaded) == 8:
            bad += at_once(threaded)
            threaded, latest = [], threaded
    bad += at_once(threaded)
    latest = (latest + threaded)[-8:]
    if hasattr(os, "fork") and latest:
        bad += after_fork(latest)
    return number, bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the fixed problems, take one in so many")
    parser.add_argument("--seed", type=int, help="draw problems anew instead, for --seconds")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--most", type=int, default=10, help="stop after so many failures")
    parser.add_argument("--only", help="one problem, as a failure prints it")
    given = parser.parse_args()
    if given.only:
        problems: Iterable = [shapes.parse(given.only)]
    elif given.seed is not None:
        rng = random.Random(given.seed)
        problems = (shapes.drawn_problem(rng) for _ in itertools.count())
    else:
        problems = shapes.sample(given.every)
    number, bad = run(problems, time.monotonic() + given.seconds, given.most)
    print(*bad, f"{number} problems, {len(bad)} failed: {_kernel.variant()}", sep="\n")
    return 1 if bad or not number else 0


if __name__ == "__main__":
    sys.exit(main())
