"""How long a study will take, from steps measured here and now."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load_for
from hypersimplex_study.engines import begin
from hypersimplex_study.models import make_network
from hypersimplex_study.speedrun import petaflops
from hypersimplex_study.sweep import Study, trainings
from hypersimplex_study.train import Runtime, Training, evaluation_batch, passes

# A step of more samples takes as much longer: measuring at this size keeps the estimate itself short.
LARGEST = 512
PATIENCE = 1.0


@dataclass(frozen=True)
class Speed:
    """Seconds a training sample and an evaluated sample take, data loading included, and data loading's part."""

    train: float
    evaluate: float
    loading: float


def measure(config: RunConfig, runtime: Runtime) -> tuple[Speed, Training]:
    training = Training(config, load_for(config, runtime.data_folder), runtime)
    here = training.prepared
    rows = here.train_rows[: min(config.batch_size, LARGEST)]
    test = torch.arange(min(len(here.test_y), evaluation_batch(training.device)))
    training.model.train()
    # One thread's own time is not stretched by what else the machine does.
    clock = time.process_time if training.device.type == "cpu" and runtime.threads == 1 else time.perf_counter
    step = _seconds(lambda: training.step(rows), clock)
    load = _seconds(lambda: training.inputs(here.train, rows, config.augment), clock)
    evaluate = _seconds(lambda: training.outputs(here.test, test), clock)
    return Speed(step / len(rows), evaluate / len(test), load / len(rows)), training


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the least of several times, after one to warm up: what disturbs a measurement only adds to it."""
    work()
    began = time.perf_counter()
    times: list[float] = []
    while len(times) < 3 or (len(times) < 30 and time.perf_counter() - began < PATIENCE):
        start = clock()
        work()
        times.append(clock() - start)
    # A clock of coarse ticks may not have moved during any of them.
    return min(times) or (time.perf_counter() - began) / len(times)


def seconds(configs: Iterable[RunConfig], runtime: Runtime) -> dict[str, tuple[float, Speed]]:
    """Return the estimated seconds of each training by key, with the speed behind it."""
    # By data set and size of a step: the loss is a small part of a step.
    speeds: dict[tuple[str, int], tuple[Speed, Training]] = {}
    estimates = {}
    for config in configs:
        if config.is_trees:
            cost = config.epochs * ten_rounds(replace(config, seed=0, lr=0.1), runtime)
            estimates[config.key()] = (cost, Speed(1, 1, 0))
            continue
        kind = (config.dataset, min(config.batch_size, LARGEST))
        if kind not in speeds:
            speeds[kind] = measure(config, runtime)
        speed, training = speeds[kind]
        here = training.prepared
        evaluated = len(here.validation_rows) + len(here.test_y)
        if config.evaluation != "running":
            evaluated += len(training.part)
        samples = len(here.train_rows)
        epoch = passes(config, samples) * samples * speed.train + evaluated * speed.evaluate
        estimates[config.key()] = (config.epochs * epoch, speed)
    return estimates


@lru_cache
def ten_rounds(config: RunConfig, runtime: Runtime) -> float:
    """Seconds of one epoch of boosted trees, the first; early stopping saves some of the others."""
    return begin(config, load_for(config, runtime.data_folder), runtime).run_epoch().seconds


def cost(study: Study, runtime: Runtime) -> str:
    """Say how many operations a study of networks takes: what a device needs is known by its owner."""
    runs = trainings([*study.tuning(), *study.at_one_setting()])
    data = load_for(runs[0], runtime.data_folder)
    model = make_network(study.network, study.width, data)
    height, width, channels = data.train_x.shape[1:]
    one = petaflops(model, (channels, height, width), study.epochs * len(data.train_y) * (1 - study.validation))
    return f"{len(runs)} trainings of {one:.2g} PFLOP, {len(runs) * one:,.0f} PFLOP in all, without the evaluations"
