"""Epochs that nobody trained, short trainings, and what they record."""

from dataclasses import replace

from hypersimplex_study.engines import InProcess
from hypersimplex_study.records import Epoch
from hypersimplex_study.train import Runtime


def epoch(number, *, own=0.5, argmax=0.4, loss=1.25):
    return Epoch(number, loss, 0.001, own, own + 0.01, argmax, argmax + 0.01, 0.125)


NO_TIMES = {"seconds": 0.0, "recompute_seconds": None, "evaluate_seconds": None}
ONE = Runtime(threads=1)


def quiet(*_):
    pass


def run(store, *configs):
    store.add_runs(configs)
    InProcess().run(store, [c.training() for c in configs], ONE, quiet)


def numbers(store, config):
    return [replace(e, **NO_TIMES) for e in store.epochs(config.training().key())]
