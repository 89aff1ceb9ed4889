"""The buffers of the loss may be of any dtype and lie anywhere; those of another size are refused."""

import os

import pytest
import torch

from tests.torch.boundaries import alone

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="runs what may crash in a forked child")


BUFFERS = """
    def step(c, n=20):
        torch.manual_seed(1)
        for _ in range(n):
            c(torch.randn(16, 10, requires_grad=True), torch.randint(10, (16,)))
        return c
"""


@pytest.mark.parametrize("name", ["threshold", "seen", "share", "samples"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
def test_buffers_of_any_dtype(name, dtype):
    alone(
        BUFFERS
        + f"""
    one, two = step(HyperSimplexLoss()), step(HyperSimplexLoss())
    setattr(two, "{name}", getattr(two, "{name}").to({dtype}))
    setattr(one, "{name}", getattr(two, "{name}").to(torch.float32))
    step(one)
    try:
        step(two)
    except TypeError as error:
        assert {dtype} == torch.int64 and str(error) == "{name} must be floating point, got torch.int64", error
        raise SystemExit
    assert {dtype} != torch.int64 or "{name}" in ("seen", "samples")
    for b in ("threshold", "seen", "share", "samples"):
        if {dtype} in (torch.float32, torch.float64) or b != "{name}":
            torch.testing.assert_close(getattr(one, b), getattr(two, b), check_dtype=False, rtol=1e-4, atol=1e-4)
    """
    )


def test_assigned_state_of_another_dtype():
    alone(
        BUFFERS
        + """
    c = step(HyperSimplexLoss())
    state = {name: value.double() for name, value in c.state_dict().items()} | {"samples": torch.tensor([7])}
    one = HyperSimplexLoss()
    one.load_state_dict(state, assign=True)
    step(one, 1)
    assert float(one.samples) == 23.0, one.samples
    """
    )


@pytest.mark.parametrize("name", ["threshold", "seen", "share"])
def test_a_buffer_of_another_size_is_an_error(name):
    alone(
        BUFFERS
        + f"""
    c = step(HyperSimplexLoss())
    c.{name} = torch.zeros(1)
    try:
        step(c)
    except ValueError as error:
        assert ("{name}" in str(error) or "{name}" == "threshold") and "10" in str(error), error
    else:
        raise AssertionError("no error")
    """
    )


@pytest.mark.parametrize("name", ["threshold", "seen", "share"])
def test_buffers_that_are_views(name):
    alone(
        BUFFERS
        + f"""
    one, two = step(HyperSimplexLoss()), step(HyperSimplexLoss())
    wide = torch.full((10, 3), 7.0)
    wide[:, 1] = two.{name}
    two.{name} = wide[:, 1]
    step(one), step(two)
    torch.testing.assert_close(two.{name}, one.{name})
    assert bool((wide[:, [0, 2]] == 7).all())
    """
    )
