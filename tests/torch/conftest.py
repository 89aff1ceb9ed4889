import pytest
import torch


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    """A test that draws from torch's own generator must not depend on which tests ran before it."""
    torch.manual_seed(0)
