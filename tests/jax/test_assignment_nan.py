"""A token with NaN is lost, and its gradient with it; the others' gradients are those of the problem without it."""

import jax
import numpy as np
import pytest

import hypersimplex.jax as hsj

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_gradients_beside_a_token_with_nan(kept):
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(12, 4)), rng.uniform(size=(12, 4))
    x[3, 1], v[3] = np.nan, kept * v[3]
    rest = np.delete(np.arange(12), 3)

    def loss(x, v):
        return (v * hsj.soft_assignment(x, 1.2, 3.7)[0]).sum()

    found, alone = jax.grad(loss)(x, v), jax.grad(loss)(x[rest], v[rest])
    assert np.isnan(found[3]).all()
    np.testing.assert_allclose(found[rest], alone, atol=1e-9)
