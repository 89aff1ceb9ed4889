"""Gradients of soft_assignment, its transforms, and ranks.

With M the entries inside (0, 1), P the centering of rows over M, and F the columns with a bias, the gradient of
sum(v * y) is P(v - lambda)/tau, where the columns F of P(v - lambda) sum to 0; to a capacity it is lambda.
"""

import pytest
import torch

from hypersimplex.torch import backends, soft_assignment
from tests.torch.ranks import ranks

DOUBLE = torch.float64


def skewed(tokens=30, experts=5, seed=0, dtype=DOUBLE):
    rng = torch.Generator().manual_seed(seed)
    return (torch.randn(tokens, experts, generator=rng, dtype=DOUBLE) + torch.linspace(0, 3, experts)).to(dtype)


def values(x, k, capacity, tau):
    return soft_assignment(x, k, capacity, tau)[0]


def arguments(factor=1.1, k=1.7, tau=0.6):
    x = skewed()
    capacity = torch.full((5,), factor * 30 * k / 5, dtype=DOUBLE)
    return tuple(
        t.requires_grad_() for t in (x, torch.tensor(k, dtype=DOUBLE), capacity, torch.tensor(tau, dtype=DOUBLE))
    )


@pytest.mark.parametrize("factor", [1.1, 1.6])
@pytest.mark.parametrize("plain", [False, True])
def test_gradients_by_finite_differences(factor, plain):
    with backends.plain_only() if plain else torch.enable_grad():
        assert torch.autograd.gradcheck(values, arguments(factor), eps=1e-6, atol=1e-6, fast_mode=True)


def test_gradient_where_all_columns_are_full():
    x = skewed().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: values(x, 1.7, 30 * 1.7 / 5, 0.6), (x,), eps=1e-6, atol=1e-6, fast_mode=True
    )


def test_gradient_by_the_formula():
    x, k, capacity, tau = arguments()
    y, bias = soft_assignment(x, k, capacity, tau)
    v = torch.randn_like(y)
    to_x, to_capacity = torch.autograd.grad(y, (x, capacity), v)
    inside = ((y > 0) & (y < 1)).to(DOUBLE)
    full = bias > 0
    assert full.any()
    assert not full.all()
    assert torch.allclose(to_x.sum(1), torch.zeros(30, dtype=DOUBLE), atol=1e-12)
    assert torch.allclose(to_x.sum(0)[full], torch.zeros(int(full.sum()), dtype=DOUBLE), atol=1e-9)
    moved = inside * (v - to_capacity)
    centered = inside * (moved - moved.sum(1, keepdim=True) / inside.sum(1, keepdim=True).clamp(min=1))
    assert torch.allclose(to_x, centered / tau, atol=1e-12)
    assert (to_capacity[~full] == 0).all()


def test_second_order():
    # The rule is linear in v and the active set stays: only 1/tau makes a second derivative.
    x, k, capacity, tau = arguments()
    weights = torch.randn(30, 5, dtype=DOUBLE)

    def slope(x, tau):
        y = values(x, k.detach(), capacity.detach(), tau)
        return torch.autograd.grad((y * weights).sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(slope, (x, tau), eps=1e-6, atol=1e-6, fast_mode=True)


def test_forward_mode_vmap_and_compile():
    x, k, capacity, tau = (t.detach() for t in arguments())
    direction = torch.randn_like(x)
    y, moved = torch.func.jvp(lambda x: values(x, k, capacity, tau), (x,), (direction,))
    h = 1e-6
    expected = (values(x + h * direction, k, capacity, tau) - values(x - h * direction, k, capacity, tau)) / (2 * h)
    assert torch.allclose(moved, expected, atol=1e-6)
    assert torch.equal(y, values(x, k, capacity, tau))
    many = torch.stack([x, x.flip(0), x + direction])
    together = torch.func.vmap(lambda x: values(x, k, capacity, tau))(many)
    assert torch.equal(together, torch.stack([values(one, k, capacity, tau) for one in many]))

    def weighted(x, k, capacity, tau):
        return (values(x, k, capacity, tau) * direction).sum()

    gradients = torch.func.grad(weighted, argnums=(0, 1, 2, 3))(x, k, capacity, tau)
    eager = torch.autograd.grad(weighted(*(t := arguments())), t)
    for one, other in zip(gradients, eager, strict=True):
        assert torch.allclose(one, other, atol=1e-9)
    compiled = torch.compile(weighted, fullgraph=True, backend="aot_eager")
    given = arguments()
    assert torch.allclose(torch.autograd.grad(compiled(*given), given)[0], eager[0], atol=1e-9)


def test_half_precision_and_masks_have_gradients():
    x = skewed(dtype=torch.bfloat16)
    x[::4, 4] = -torch.inf
    x.requires_grad_()
    y, _ = soft_assignment(x, 1, 7.0, 0.5)
    y.float().square().sum().backward()
    assert x.grad.dtype == y.dtype == torch.bfloat16
    assert x.grad.isfinite().all()
    assert (x.grad[::4, 4] == 0).all()
    assert (x.grad != 0).any()


@pytest.mark.parametrize("transformed", [False, True])
def test_a_token_with_nan_spoils_no_other_gradient(transformed):
    x, weights = skewed(), torch.linspace(0, 1, 5, dtype=DOUBLE).square()
    x[3, 1] = torch.nan
    rest = torch.arange(30) != 3

    def weighted(x):
        return (values(x, 1, 6.0, 0.5) * weights)[rest if len(x) == 30 else slice(None)].sum()

    def gradient(x):
        if transformed:
            return torch.func.grad(weighted)(x)
        x = x.clone().requires_grad_()
        return torch.autograd.grad(weighted(x), x)[0]

    assert torch.allclose(gradient(x)[rest], gradient(x[rest]), atol=1e-9)


def test_what_is_no_number_and_what_has_no_values():
    with pytest.raises(TypeError, match="capacity must be real"):
        soft_assignment(skewed(), 1, torch.full((5,), 7 + 1j))
    y, bias = soft_assignment(torch.zeros(30, 5, device="meta"), 1, 7.0)
    assert y.shape == (30, 5)
    assert bias.shape == (5,)


def test_one_k_for_each_token():
    x = skewed().requires_grad_()
    k = torch.linspace(0.2, 1.3, 30, dtype=DOUBLE).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, k: values(x, k, 5.0, 0.6), (x, k), eps=1e-6, atol=1e-6, fast_mode=True)


def on_ranks(group, parts, dtype):
    x = skewed(dtype=dtype).split(parts)[torch.distributed.get_rank(group)].requires_grad_()
    y, bias = soft_assignment(x, 2, 12.5, 0.4, group=group)
    (y * torch.linspace(-1, 1, 5, dtype=dtype) ** 3 * y).sum().backward()
    return y.detach(), bias, x.grad


@pytest.mark.parametrize("parts", [[15, 15], [23, 7], [0, 30], [10, 0, 20]])
def test_ranks_equal_one_process(parts):
    results = ranks.run(len(parts), on_ranks, parts, DOUBLE)
    x = skewed().requires_grad_()
    y, bias = soft_assignment(x, 2, 12.5, 0.4)
    (y * torch.linspace(-1, 1, 5, dtype=DOUBLE) ** 3 * y).sum().backward()
    assert torch.allclose(torch.cat([r[0] for r in results]), y, atol=1e-9)
    assert torch.allclose(torch.cat([r[2] for r in results]), x.grad, atol=1e-9)
    for result in results:
        assert torch.allclose(result[1], bias, atol=1e-9)


def failing(group, kind):
    rank = torch.distributed.get_rank(group)
    x = skewed(10, 5 if kind != "experts" else 5 + rank)
    if kind == "mask" and rank == 1:
        x[3] = -torch.inf
    with pytest.raises((ValueError, RuntimeError)) as caught:
        soft_assignment(x, 1, 4.0 + rank * (kind == "capacity"), group=group)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("mask", ["rank 1 failed: ValueError: k must be at most 0", "k must be at most 0"]),
        ("experts", ["the same number of experts on every rank, got [5, 6]"] * 2),
        ("capacity", ["capacity must be the same on every rank"] * 2),
    ],
)
def test_ranks_fail_together(kind, messages):
    for said, expected in zip(ranks.run(2, failing, kind), messages, strict=True):
        assert expected in said
