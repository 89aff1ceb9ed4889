"""Trainings of boosted trees as the study makes them, on data made here."""

from dataclasses import replace

import numpy as np

from hypersimplex_study.boosted import Boosting
from hypersimplex_study.config import RunConfig
from hypersimplex_study.samples import Data
from hypersimplex_study.train import Runtime
from tests.boosting.problems import data as problem

ONE = Runtime(threads=1)
CONFIG = RunConfig(dataset="made", network="lightgbm", width=7, loss="hypersimplex", lr=0.2, epochs=3, validation=0.25)


def made(n=900, name="made", features=6):
    x, y = problem(n, features=features)
    x, cut = x.astype(np.float32), n * 2 // 3
    return Data(name, x[:cut], y[:cut], x[cut:], y[cut:], ("no", "yes"))


def run(config, data=None):
    training = Boosting(config, data or made(), ONE)
    while not training.finished:
        training.run_epoch()
    return training


def numbers(history):
    return [replace(e, seconds=0.0) for e in history]
