"""What the migration pages promise beside the libraries that one comes from."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(scope="module")
def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=20), jnp.float32)


def test_box_section_is_that_of_jaxopt(x):
    projection = pytest.importorskip("jaxopt.projection")
    from hypersimplex.jax import box_section

    rng = np.random.default_rng(1)
    low, high, weight = (jnp.asarray(rng.uniform(*ends, 20), jnp.float32) for ends in ((-1, 0), (0.2, 1), (0.5, 2)))
    theirs = projection.projection_box_section(x, (low, high, weight, 1.5))
    ours = box_section(x, total=1.5, lower=low, upper=high, weight=weight)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)  # of their bisection


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_the_simplex_is_that_of_optax(x, scale):
    optax = pytest.importorskip("optax")
    from hypersimplex.jax import box_section, soft_topk

    theirs = optax.projections.projection_simplex(x, scale)
    np.testing.assert_allclose(scale * soft_topk(x, k=1, tau=scale), theirs, atol=1e-6)
    np.testing.assert_allclose(box_section(x, total=scale, upper=jnp.inf), theirs, atol=1e-6)
