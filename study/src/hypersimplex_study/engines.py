"""Who computes the trainings of a study: this process, several local ones, or a Ray cluster (`ray_engine`)."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hypersimplex_study import checkpoint
from hypersimplex_study.checkpoint import CheckpointError
from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load_cached, load_for
from hypersimplex_study.locks import claim
from hypersimplex_study.provenance import provenance
from hypersimplex_study.records import Epoch
from hypersimplex_study.samples import Data
from hypersimplex_study.schema import FINISHED, StoreError
from hypersimplex_study.store import Store
from hypersimplex_study.train import DivergedError, Runtime, Training

if TYPE_CHECKING:
    from hypersimplex_study.boosted import Boosting

OnEpoch = Callable[[RunConfig, Epoch], None]


class Engine(Protocol):
    # Whether it computes on this machine, so that what a study needs can be looked at before it begins.
    local: bool

    def run(self, store: Store, trainings: Sequence[RunConfig], runtime: Runtime, on_epoch: OnEpoch) -> None: ...


def check_data(store: Store, config: RunConfig, data: Data) -> None:
    """Refuse to mix runs on different content under one name."""
    others = store.fingerprints(config) - {data.fingerprint}
    if others:
        raise ValueError(
            f"dataset {config.dataset} has other content ({data.fingerprint}) than the runs in {store.path} "
            f"({', '.join(sorted(others))}); name another file with --store"
        )


def begin(config: RunConfig, data: Data, runtime: Runtime) -> "Training | Boosting":
    """A training that has not begun: of a network, or of boosted trees, which only then have to be installed."""
    if not config.is_trees:
        return Training(config, data, runtime)
    from hypersimplex_study.boosted import Boosting

    return Boosting(config, data, runtime)


class Begun(NamedTuple):
    """A training begins, or begins again: with what it has behind it, and what there is to say of that."""

    provenance: dict[str, Any]
    history: list[Epoch]
    note: str | None


class Told(NamedTuple):
    """An epoch, and the checkpoint after it; after the last one none."""

    epoch: Epoch
    snapshot: bytes | None


class Ended(NamedTuple):
    """The last message of a training: the state it is left in."""

    state: str
    error: str | None = None


Message = Begun | Told | Ended


def compute(
    config: RunConfig, runtime: Runtime, raw: bytes | None, accept: Callable[[Data], None] = lambda data: None
) -> Iterator[Message]:
    """Run one training. Its errors are messages too: only the death of the process that computes is an exception."""
    try:
        data = load_for(config, runtime.data_folder)
        accept(data)
        yield from train(config, data, runtime, raw)
        yield Ended("done")
    except StoreError:
        # Where the store cannot be used, no error can be recorded in it: stop and say so.
        raise
    except DivergedError as error:
        yield Ended("diverged", str(error))
    except Exception as error:
        yield Ended("failed", f"{type(error).__name__}: {error}")


def train(config: RunConfig, data: Data, runtime: Runtime, raw: bytes | None) -> Iterator[Begun | Told]:
    """Train what a checkpoint leaves to do; from one that is damaged or of another version, begin anew and say why."""
    try:
        yield from _train(config, data, runtime, raw, None)
    except CheckpointError as error:
        yield from _train(config, data, runtime, None, f"{error}; the run starts again")


def _train(
    config: RunConfig, data: Data, runtime: Runtime, raw: bytes | None, note: str | None
) -> Iterator[Begun | Told]:
    """A checkpoint that can be read but not gone on from is a CheckpointError."""
    training = begin(config, data, runtime)
    behind = 0
    try:
        if raw is not None:
            training.restore(raw)
            behind = len(training.history)
            note = f"resumed from its checkpoint after epoch {behind - 1}" if behind else None
        yield Begun(provenance(runtime, data.fingerprint, training.sizes), list(training.history), note)
        while not training.finished:
            epoch = training.run_epoch()
            yield Told(epoch, None if training.finished else training.snapshot())
    except (CheckpointError, DivergedError):
        raise
    except Exception as error:
        if raw is not None and len(training.history) == behind:
            reason = f"{type(error).__name__}: " + str(error).partition("\n")[0]
            raise CheckpointError(f"checkpoint of {config.key()} does not fit this version ({reason})") from error
        raise


def write(store: Store, config: RunConfig, message: Message, on_epoch: OnEpoch) -> None:
    """Enter into the store what a training tells."""
    key, folder = config.key(), store.work_folder
    if isinstance(message, Begun):
        if message.note:
            store.event(key, message.note)
        # The store may be an epoch behind the checkpoint, or hold epochs of a history that is gone.
        store.record_all(key, message.history, restart=True)
        store.start(key, message.provenance)
    elif isinstance(message, Told):
        if message.snapshot is not None:
            try:
                checkpoint.write(folder, key, message.snapshot)
            except OSError as error:  # a full disk costs the checkpoint, not the run
                store.event(key, f"checkpoint not written ({error}); the run goes on without it")
        store.record(key, message.epoch)
        on_epoch(config, message.epoch)
    else:
        store.finish(key, message.state, message.error)
        if message.state in FINISHED:
            checkpoint.remove(folder, key)


def execute(store: Store, config: RunConfig, runtime: Runtime, on_epoch: OnEpoch) -> str:
    """Bring one training to its end, unless somebody else is at it; return its state, or "busy"."""
    key, folder = config.key(), store.work_folder
    with claim(folder, key) as mine:
        if not mine:
            return "busy"
        if store.state(key) not in FINISHED:
            for message in compute(config, runtime, checkpoint.read(folder, key), partial(check_data, store, config)):
                write(store, config, message, on_epoch)
        return str(store.state(key))


def work_through(store: Store, trainings: Sequence[RunConfig], runtime: Runtime, on_epoch: OnEpoch) -> None:
    """Execute all trainings; those that another process holds are looked at again until they are finished."""
    left = list(trainings)
    while left:
        busy = [c for c in left if execute(store, c, runtime, on_epoch) == "busy"]
        if len(busy) == len(left):
            time.sleep(0.2)
        left = busy


class InProcess:
    local = True

    def run(self, store: Store, trainings: Sequence[RunConfig], runtime: Runtime, on_epoch: OnEpoch) -> None:
        work_through(store, trainings, runtime, on_epoch)


def _end_with_parent() -> None:
    """A command that was killed must not leave workers behind that go on with its study."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _worker(path: str, trainings: list[RunConfig], runtime: Runtime) -> None:
    _end_with_parent()
    with Store(path) as store:
        try:
            work_through(store, trainings, runtime, lambda *_: None)
        except StoreError as error:
            # The parent repeats it; a traceback a worker would hide it.
            raise SystemExit(str(error)) from None
        except KeyboardInterrupt:
            raise SystemExit(130) from None


class Processes:
    """Several local processes. Each takes the next free training; one that dies is replaced."""

    local = True

    def __init__(self, count: int, retries: int = 3) -> None:
        if count < 1:
            raise ValueError(f"processes must be at least 1, got {count}")
        self.count, self.retries = count, retries

    def run(self, store: Store, trainings: Sequence[RunConfig], runtime: Runtime, on_epoch: OnEpoch) -> None:
        # The workers load their own.
        load_cached.cache_clear()
        # Spawned, not forked: torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")

        def start(shift: int) -> BaseProcess:
            order = [*trainings[shift:], *trainings[:shift]]
            process = context.Process(target=_worker, args=(os.fspath(store.path), order, runtime))
            process.start()
            return process

        seen = {c.key(): len(store.epochs(c.key())) for c in trainings}
        workers = [start(i) for i in range(min(self.count, len(trainings)))]
        deaths = 0
        try:
            while workers:
                time.sleep(0.2)
                self._report(store, trainings, seen, on_epoch)
                for i, worker in enumerate(workers):
                    if worker.is_alive() or worker.exitcode == 0:
                        continue
                    deaths += 1
                    store.event(None, f"worker process {worker.pid} ended with code {worker.exitcode}")
                    if deaths > self.retries:
                        raise RuntimeError(
                            f"{deaths} worker processes died, the last with code {worker.exitcode}; "
                            "run the same command again to go on"
                        )
                    workers[i] = start(i)
                workers = [w for w in workers if w.exitcode != 0]
            self._report(store, trainings, seen, on_epoch)
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()

    @staticmethod
    def _report(store: Store, trainings: Sequence[RunConfig], seen: dict[str, int], on_epoch: OnEpoch) -> None:
        counts = store.epoch_counts()
        for config in trainings:
            key = config.key()
            if counts.get(key, 0) > seen[key]:
                for epoch in store.epochs(key)[seen[key] :]:
                    on_epoch(config, epoch)
                seen[key] = counts[key]
