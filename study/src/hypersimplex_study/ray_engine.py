"""A Ray cluster computes, the driver writes the store.

A worker streams its epochs, each with the checkpoint after it. So the driver can hand the training to any other worker
when one dies, and no folder has to be shared.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from hypersimplex_study import checkpoint, engines
from hypersimplex_study.config import RunConfig
from hypersimplex_study.engines import Begun, Message, OnEpoch, write
from hypersimplex_study.locks import claim
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime


def compute(config: RunConfig, runtime: Runtime, raw: bytes | None) -> Iterator[Message]:
    """Run one training on a worker, and say which one it was."""
    for message in engines.compute(config, runtime, raw):
        if isinstance(message, Begun):
            made = {**message.provenance, "engine": "ray", "worker": os.getpid()}
            message = message._replace(provenance=made)
        yield message


class RayEngine:
    local = False

    def __init__(self, address: str | None, retries: int = 3) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("--engine ray needs Ray; install it with: pip install 'ray>=2.9'") from error
        self.ray = ray
        self.address, self.retries = address, retries

    def run(self, store: Store, trainings: Sequence[RunConfig], runtime: Runtime, on_epoch: OnEpoch) -> None:
        ray = self.ray
        started = not ray.is_initialized()
        if started:
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False if not self.address else None)
        try:
            with ExitStack() as locks:
                mine = [c for c in trainings if locks.enter_context(claim(store.work_folder, c.key()))]
                skipped = len(trainings) - len(mine)
                if skipped:
                    store.event(None, f"{skipped} trainings are in the hands of another process and were left to it")
                self._drive(store, [c for c in mine if store.state(c.key()) not in FINISHED], runtime, on_epoch)
        finally:
            if started:
                ray.shutdown()

    def _drive(self, store: Store, trainings: list[RunConfig], runtime: Runtime, on_epoch: OnEpoch) -> None:
        ray = self.ray
        options: dict[str, Any] = {"num_cpus": runtime.threads or 1, "max_retries": 0, "num_returns": "streaming"}
        if runtime.device.startswith("cuda"):
            options["num_gpus"] = 1
        remote = ray.remote(**options)(compute)
        folder = store.work_folder
        waiting, deaths = list(reversed(trainings)), dict.fromkeys((c.key() for c in trainings), 0)
        streams: dict[Any, RunConfig] = {}
        # No more streams than the cluster can hold: a stream keeps its checkpoints in the object store until read.
        slots = max(1, int(ray.cluster_resources().get("CPU", 1) // (runtime.threads or 1)))
        while waiting or streams:
            while waiting and len(streams) < slots:
                config = waiting.pop()
                stream = remote.remote(config, runtime, checkpoint.read(folder, config.key()))
                streams[stream] = config
            ready, _ = ray.wait(list(streams), num_returns=1, timeout=1.0)
            for stream in ready:
                config = streams[stream]
                try:
                    message = ray.get(next(stream))
                except StopIteration:
                    del streams[stream]
                    continue
                except ray.exceptions.RayError as error:
                    del streams[stream]
                    if self._lost(store, config, deaths, error):
                        waiting.append(config)
                    continue
                if isinstance(message, Begun) and store.fingerprints(config) - {message.provenance["data"]}:
                    raise ValueError(f"dataset {config.dataset} has other content on a worker than in {store.path}")
                write(store, config, message, on_epoch)

    def _lost(self, store: Store, config: RunConfig, deaths: dict[str, int], error: Exception) -> bool:
        """Record the death of a worker; return whether the training is given to another."""
        key = config.key()
        if store.state(key) in FINISHED:
            return False
        deaths[key] += 1
        reason = f"worker lost ({type(error).__name__})"
        if deaths[key] > self.retries:
            store.finish(key, "failed", f"{reason}, {deaths[key]} times")
            return False
        store.event(key, f"{reason} during {config.describe()}; retry {deaths[key]} of {self.retries}")
        return True
