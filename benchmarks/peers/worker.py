"""One peer in a process of its own, with limits of time and memory, so that it may fail without taking others along."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.cases import problem
from benchmarks.memory import peak_bytes
from benchmarks.peers import edges, peers
from benchmarks.peers.steps import array, default_k, steps
from benchmarks.timing import Step

Answer = dict[str, Any]

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Limits:
    seconds: float = 10.0
    gigabytes: float = 8.0


@dataclass(frozen=True)
class Task:
    """`probe`: roughly how long; `time`: the same with care; `memory`: the peak; `edge`: one of the table of edges."""

    kind: str
    shape: tuple[int, int] = (1, 1)
    dim: int = 1
    edge: str = ""


def run(
    peer: peers.Peer, tasks: Sequence[Task], folder: Path, limits: Limits, *, stop: bool = False
) -> Iterator[tuple[Task, Answer]]:
    """Every task with its answer; one that ends the process is answered by {"failed": why}, and ends all if `stop`."""
    left = list(tasks)
    while left:
        job = {"peer": peer.name, "folder": str(folder), "limits": asdict(limits), "tasks": [asdict(t) for t in left]}
        command = [sys.executable, "-m", "benchmarks.peers.worker"]
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, cwd=CHECKOUT)
        for line in done.stdout.splitlines():
            answer = json.loads(line)
            yield left.pop(0), answer
            if stop and "failed" in answer:
                return
        if left:
            yield left.pop(0), {"failed": _why(done.returncode, done.stderr)}
            if stop:
                return


def _why(code: int, errors: str) -> str:
    if code == -getattr(signal, "SIGALRM", 0):
        return "time"
    if code == -getattr(signal, "SIGKILL", 0) or any(
        word in errors.lower() for word in ("bad_alloc", "exhausted", "out of memory")
    ):
        return "memory"
    return "crash"


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # some peers print
    job = json.loads(sys.stdin.read())
    peer, limits = peers.find(job["peer"]), Limits(**job["limits"])
    function = peer.load(Path(job["folder"]))
    _limit_memory(limits.gigabytes)
    for raw in job["tasks"]:
        task = Task(**{**raw, "shape": tuple(raw["shape"])})
        try:
            answer = _answer(task, peer, function, limits)
        except Exception as error:  # whatever a peer raises is the observation
            words = f"{type(error).__name__}: {error}".lower()
            memory = any(word in words for word in ("memory", "alloc", "exhausted"))
            answer = {"failed": "memory" if memory else "error", "message": words[:300]}
        print(json.dumps(answer), file=answers)


def _answer(task: Task, peer: peers.Peer, function: peers.Function, limits: Limits) -> Answer:
    if task.kind == "edge":
        with _Alarm(limits.seconds):
            return {"outcome": edges.outcome(edges.find(task.edge), peer, function)}
    n = task.shape[task.dim]
    x, v = problem(task.shape)
    made = steps(peer, function, x, v, default_k(n), task.dim)
    if task.kind == "memory":
        small = steps(peer, function, x[:, :100].contiguous(), v[:, :100].contiguous(), 10, task.dim)
        small.both()
        with _Alarm(limits.seconds):
            return {"bytes": peak_bytes(made.both)}
    patience = 0.0 if task.kind == "probe" else 0.4
    answer = {"forward": _seconds(made.forward, limits, patience), "both": _seconds(made.both, limits, patience)}
    if task.kind == "probe":
        return answer
    k = 1 if peer.only_k_one else default_k(n)
    error = float(abs(array(made.forward()).sum(task.dim) - k).max()) / k
    return {**answer, "sum_error": error}


def _seconds(step: Step, limits: Limits, patience: float) -> float:
    """The median of as many calls as fit the patience, after one that compiles or warms up, if that was not long."""

    def once() -> float:
        with _Alarm(limits.seconds):
            begin = time.perf_counter()
            step()
            return time.perf_counter() - begin

    times = [once()]
    if times[0] > 2 / 3 * limits.seconds:
        return times[0]
    times = [once()]
    while sum(times) < patience and len(times) < 101:
        times.append(once())
    return statistics.median(times)


class _Alarm:
    """Ends the process when time is up: a loop in compiled code hears nothing less."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_: object) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory(gigabytes: float) -> None:
    """So much above what importing has reserved."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    limit = held + int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
