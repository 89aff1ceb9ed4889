import importlib.util

import pytest

# JAX lives in an environment of its own; `make test` says that this suite is left out, `make test-jax` runs it.
collect_ignore_glob = [] if importlib.util.find_spec("jax") else ["test_*.py"]


@pytest.fixture
def x64():
    import jax

    with jax.enable_x64(True):
        yield
