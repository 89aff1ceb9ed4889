import importlib.util

import pytest

# JAX lives in an environment of its own; `make test` says that this suite is left out, `make test-jax` runs it.
collect_ignore_glob = [] if importlib.util.find_spec("jax") else ["test_*.py"]


@pytest.fixture
def x64():
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["1", "0"], ids=["kernel", "jnp"], scope="module")
def each_way(request):
    """Both ways to solve: the kernel, and jnp as on other devices."""
    import jax

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYPERSIMPLEX_JAX_KERNEL", request.param)
        jax.clear_caches()  # what was lowered the other way
        yield request.param
    jax.clear_caches()
