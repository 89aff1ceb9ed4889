"""What the tests of the study share."""

from dataclasses import replace

import pytest
import torch

from hypersimplex.study.config import RunConfig
from hypersimplex.study.engines import InProcess
from hypersimplex.study.records import Epoch
from hypersimplex.study.store import Store
from hypersimplex.study.train import Runtime


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "study.sqlite") as opened:
        yield opened


@pytest.fixture
def short():
    """A training of a few epochs on the embedded digits."""
    return RunConfig(loss="hypersimplex", epochs=4, batch_size=256, width=16)


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


@pytest.fixture
def expected(short, tmp_path_factory):
    """What an undisturbed run records."""
    with Store(tmp_path_factory.mktemp("undisturbed") / "s.sqlite") as store:
        run(store, short)
        return numbers(store, short)
