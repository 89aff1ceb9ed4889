"""What JAX cannot read as an array of numbers: the error names the argument, in every function."""

import numpy as np
import pytest

import hypersimplex.jax as hsj
from tests.unreadable import HUGE, VALUES, X, calls

LABELS = np.array([0, 1])
CALLS = calls(hsj) | {
    "loss: logits": ("logits", lambda v: hsj.hypersimplex_loss(v, LABELS)),
    "loss: labels": ("labels", lambda v: hsj.hypersimplex_loss(X, v)),
    "loss: where": ("where", lambda v: hsj.hypersimplex_loss(X, LABELS, where=v)),
    "loss: k": ("k", lambda v: hsj.hypersimplex_loss(X, LABELS, k=v)),
    "loss: prior": ("prior", lambda v: hsj.hypersimplex_loss(X, LABELS, prior=v)),
    "loss: tau": ("tau", lambda v: hsj.hypersimplex_loss(X, LABELS, tau=v)),
}


@pytest.mark.parametrize("value", [*VALUES])
@pytest.mark.parametrize("call", CALLS)
def test_the_argument_is_named(call, value):
    (name, run), (make, got) = CALLS[call], VALUES[value]
    with pytest.raises(TypeError, match=f"^{name} must be readable as an array, {got}"):
        run(make())


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("call", CALLS)
def test_a_whole_number_beyond_float64(call, value):
    name, run = CALLS[call]
    with pytest.raises(ValueError, match=f"^{name} must be a number that float64 holds, got one beyond 1e308$"):
        run(HUGE[value])


def test_masked_arrays_would_lose_their_mask():
    with pytest.raises(TypeError, match=r"^k must be an array without a mask"):
        hsj.soft_topk(X, np.ma.masked_array([1, 1], [True, False]))
