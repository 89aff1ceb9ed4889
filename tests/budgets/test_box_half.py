"""box_section in half precision: computed in float32, forward and backward, whatever the bounds."""

import contextlib

import pytest
import torch

import hypersimplex.torch as hst
from hypersimplex.torch import backends

both_halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@both_halves
def test_half_precision_keeps_its_dtype(dtype):
    x = torch.tensor([0.5, 1.0, -1.0], dtype=dtype, requires_grad=True)
    y = hst.box_section(x, 1, upper=0.9)
    y[0].backward()
    assert y.dtype == x.grad.dtype == dtype
    assert x.grad.tolist() == [0.5, -0.5, 0.0]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("at_most", [False, True])
@both_halves
@pytest.mark.parametrize(
    ("ends", "box"),
    [
        pytest.param((-0.2, 1.2), (3.6, 0.3, 0.7), id="bounds that the dtype does not hold"),
        pytest.param((99, 103.5), (804.3, 100.1, 101.2), id="free entries that the dtype puts on a bound"),
    ],
)
def test_the_gradient_is_that_of_float32(plain, at_most, dtype, ends, box):
    x, v = torch.linspace(*ends, 8).to(dtype), torch.arange(8.0).to(dtype)

    def f(x):
        return hst.box_section(x, *box, at_most=at_most)

    wide, half = x.float().requires_grad_(), x.clone().requires_grad_()
    wanted = torch.autograd.grad(f(wide), wide, v.float())[0].to(dtype)
    assert 1 < wanted.count_nonzero() < 8
    with backends.plain_only() if plain else contextlib.nullcontext():
        y = f(half)
        for again in (False, True):
            (found,) = torch.autograd.grad(y, half, v, retain_graph=True, create_graph=again)
            torch.testing.assert_close(found, wanted)
        torch._dynamo.reset()
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(torch.autograd.grad(compiled(half), half, v)[0], wanted)
        moved = torch.func.jvp(f, (x,), (v,))[1]
    torch.testing.assert_close(moved, wanted)  # the Jacobian is symmetric
    assert y.dtype == found.dtype == moved.dtype == dtype
    torch.testing.assert_close(y, f(wide).to(dtype))
