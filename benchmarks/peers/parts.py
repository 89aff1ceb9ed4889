"""The five measurements. Each takes the peers found here and returns rows for its file."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks import timing
from benchmarks.cases import Case, problem, size
from benchmarks.peers import worker
from benchmarks.peers.edges import EDGES, asked
from benchmarks.peers.peers import OTHER, OURS, SOFTMAX, Peer
from benchmarks.peers.results import Row
from benchmarks.peers.steps import array, default_k, steps
from benchmarks.peers.worker import Limits, Task
from hypersimplex import reference

BASES, WAYS = (OURS, SOFTMAX), ("forward", "both")


@dataclass(frozen=True)
class Options:
    folder: Path
    threads: int = 1
    rounds: int = 15
    limits: Limits = field(default_factory=Limits)
    slow: float = 1.0  # seconds; a call that takes longer is made once and takes no turns
    memory_sizes: Sequence[int] = (10**4, 10**6)
    largest: int = 10**8


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """As many processors as threads, for peers and their processes that ask no one how many threads to use."""
    if not hasattr(os, "sched_setaffinity"):
        with timing.threads(threads):
            yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:threads])
    try:
        with timing.threads(threads):
            yield
    finally:
        os.sched_setaffinity(0, before)


def exact(peers: Sequence[Peer], options: Options) -> Iterator[list[Row]]:
    """The largest distance to the reference, of y, of its sum and of the gradient, over four small problems."""
    problems = [(problem((10, n), scale), k) for n, k in ((100, 10), (101, 50)) for scale in (1, 5)]
    for peer in peers:
        if peer.kind == OTHER:
            continue
        function, worst = peer.load(options.folder), {"distance": 0.0, "sum": 0.0, "gradient": 0.0}
        for (x, v), k in problems:
            k = 1 if peer.only_k_one else k
            y, gradient = map(array, steps(peer, function, x, v, k).both())
            right = reference.soft_binary_argmax(x.numpy(), k)
            errors = (y - right, y.sum(-1) - k, gradient - reference.vjp(right, v.numpy())[0])
            worst = {name: max(worst[name], float(abs(e).max())) for name, e in zip(worst, errors, strict=True)}
        yield [{"peer": peer.name, "kind": peer.kind, **worst}]


def edges(peers: Sequence[Peer], options: Options) -> Iterator[list[Row]]:
    for peer in peers:
        tasks = [Task("edge", edge=edge.name) for edge in EDGES if asked(edge, peer)]
        answers = worker.run(peer, tasks, options.folder, options.limits)
        words = {"time": "hangs"}
        yield [
            {"peer": peer.name, "edge": t.edge, "outcome": a.get("outcome") or words.get(a["failed"], a["failed"])}
            for t, a in answers
        ]


def memory(peers: Sequence[Peer], options: Options) -> Iterator[list[Row]]:
    """At the largest size a peer manages. A process for each: a peak only rises."""
    for peer in peers:
        rows: list[Row] = []
        for n in sorted(options.memory_sizes, reverse=True):
            if rows and not rows[-1]["failed"]:
                break
            ((_, answer),) = worker.run(peer, [Task("memory", (1, n))], options.folder, options.limits)
            megabytes = answer["bytes"] / 2**20 if "bytes" in answer else ""
            rows.append({"n": n, "peer": peer.name, "megabytes": megabytes, "failed": answer.get("failed", "")})
        yield rows


def growth(peers: Sequence[Peer], options: Options) -> Iterator[list[Row]]:
    """Time against n on one slice, up to the size that a peer does not manage within the limits."""
    sizes = [10**p for p in range(2, 9) if 10**p <= options.largest]
    for peer in peers:
        rows = []
        for task, answer in worker.run(
            peer, [Task("time", (1, n)) for n in sizes], options.folder, options.limits, stop=True
        ):
            failed = answer.get("failed", "")
            if not failed and peer.kind != OTHER and answer["sum_error"] > 0.01:
                failed = "wrong sum"
            times = {f"{name}_us": 1e6 * answer[name] if name in answer else "" for name in WAYS}
            rows.append({"peer": peer.name, "n": task.shape[1], **times, "failed": failed})
            if failed:
                break
        yield rows


def probe(peers: Sequence[Peer], options: Options, cases: Sequence[Case]) -> Iterator[list[Row]]:
    """Who manages a shape, and roughly how fast: in a process of its own, before taking turns in one with others."""
    tasks = [Task("probe", shape, dim) for shape, dim in cases]
    for peer in peers:
        answers = worker.run(peer, tasks, options.folder, options.limits)
        yield [
            {
                **_place(options, (task.shape, task.dim), peer),
                **{way: answer.get(way, "") for way in WAYS},
                "failed": answer.get("failed", ""),
            }
            for task, answer in answers
        ]


def times(peers: Sequence[Peer], options: Options, cases: Sequence[Case], probes: Sequence[Row]) -> Iterator[list[Row]]:
    """All peers in turn at each shape; one that the probe saw fail or take long takes no turns."""
    for case in cases:
        before = {}
        for row in probes:
            if row == row | {name: str(value) for name, value in _place(options, case).items()}:
                before[row["peer"]] = {"failed": row["failed"]} | {w: float(row[w]) for w in WAYS if row[w]}
        yield list(_at_shape(case, [peer for peer in peers if peer.name in before], before, options))


def _place(options: Options, case: Case, peer: Peer | None = None) -> Row:
    place = {"threads": options.threads, "shape": size(case[0]), "dim": case[1]}
    return place | {"peer": peer.name} if peer else place


def _at_shape(case: Case, peers: Sequence[Peer], before: dict[str, worker.Answer], options: Options) -> Iterator[Row]:
    shape, dim = case
    turns = [peer for peer in peers if before[peer.name].get("both", torch.inf) <= options.slow]
    x, v = problem(shape)
    made = {p.name: steps(p, p.load(options.folder), x, v, default_k(shape[dim]), dim) for p in turns}
    measured = {}
    for way in WAYS:
        functions = {name: getattr(pair, way) for name, pair in made.items()}
        calls = {name: timing.calls_for(step) for name, step in functions.items()}
        seldom = [name for name in made if before[name][way] > 0.02 and name not in BASES]
        measured[way] = timing.interleave(functions, options.rounds, calls, seldom=seldom)
    for peer in peers:
        answer, took_turns = before[peer.name], peer in turns
        row = _place(options, case, peer)
        row["rounds"] = len(measured["both"][peer.name]) if took_turns else int("both" in answer)
        for way, found in measured.items():
            if not took_turns and way in answer:
                found[peer.name] = [answer[way]]
            ratios = [timing.ratio(found, peer.name, base) if {peer.name, base} <= {*found} else "" for base in BASES]
            row[f"{way}_us"] = timing.microseconds(found, peer.name) if peer.name in found else ""
            row |= {f"{way}_over_ours": ratios[0], f"{way}_over_softmax": ratios[1]}
        yield {**row, "failed": answer["failed"]}
