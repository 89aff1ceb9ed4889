"""What the tests of the study share."""

import pytest
import torch

from hypersimplex_study.config import RunConfig
from hypersimplex_study.store import Store
from trainings import numbers, run


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


@pytest.fixture
def expected(short, tmp_path_factory):
    """What an undisturbed run records."""
    with Store(tmp_path_factory.mktemp("undisturbed") / "s.sqlite") as store:
        run(store, short)
        return numbers(store, short)
