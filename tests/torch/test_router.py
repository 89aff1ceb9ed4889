"""BalancedRouter: every expert within its capacity, biases that are learned, kept and served by, and ranks."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hypersimplex.torch import BalancedRouter, soft_assignment
from tests.torch.ranks import ranks
from tests.torch.test_assignment import DOUBLE, skewed


def routed_on_ranks(group, parts, hard, spoiled):
    router = BalancedRouter(5, 2, tau=0.4, hard=hard, group=group)
    x = skewed()
    x[:spoiled] = torch.nan
    x = x[: sum(parts)].split(parts)[torch.distributed.get_rank(group)].requires_grad_()
    y = router(x)
    y.sum().backward()
    return y.detach().sum(0), router.bias, router.batches


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("parts", [[23, 7], [30, 0], [10, 0, 20]])
def test_a_router_over_ranks_shares_its_capacity(parts, hard):
    """Also where a rank has no token."""
    results = ranks.run(len(parts), routed_on_ranks, parts, hard, 0)
    alone = BalancedRouter(5, 2, tau=0.4)
    alone(skewed())
    load = sum(result[0] for result in results)
    assert torch.allclose(load, torch.full((5,), 12.0, dtype=DOUBLE), atol=2 if hard else 1e-6)
    for _, bias, batches in results:
        assert torch.allclose(bias, alone.bias, atol=1e-6)
        assert batches == 1


@pytest.mark.parametrize(("parts", "spoiled", "counted"), [([0, 0], 0, 0), ([10, 20], 10, 1), ([10, 20], 30, 0)])
def test_ranks_learn_together_from_what_there_is_to_learn(parts, spoiled, counted):
    first, second = ranks.run(2, routed_on_ranks, parts, False, spoiled)
    assert torch.equal(first[1], second[1])
    assert first[2] == second[2] == counted


def test_router_balances_a_batch_and_serves_by_its_bias():
    router = BalancedRouter(8, 2, tau=0.3)
    for seed in range(20):
        y = router(skewed(512, 8, seed, torch.float32))
        assert torch.allclose(y.sum(0), torch.full((8,), 128.0), rtol=1e-5)
    saved = BalancedRouter(8, 2, tau=0.3)
    saved.load_state_dict(router.state_dict())
    new = skewed(4096, 8, 99, torch.float32)
    before = router.bias.clone()
    served = saved.eval()(new)
    assert torch.allclose(served[:7], saved(new[:7]), rtol=0, atol=1e-6)  # rows alone are summed in another order
    load = served.sum(0) / (4096 * 2 / 8)
    assert load.max() < 1.1
    assert torch.equal(saved.bias, before)


def test_hard_router_gives_k_ones_and_the_soft_gradient():
    x = skewed(256, 8, dtype=torch.float32).requires_grad_()
    router = BalancedRouter(8, 2, tau=0.1, hard=True)
    y = router(x.view(16, 16, 8))
    assert y.shape == (16, 16, 8)
    assert ((y == 0) | (y == 1)).all()
    assert (y.sum(-1) == 2).all()
    assert y.sum((0, 1)).max() <= 1.1 * 64
    weights = torch.randn(256, 8)
    (to_x,) = torch.autograd.grad((y.view(256, 8) * weights).sum(), x)
    soft, _ = soft_assignment(x, 2, 64.0, 0.1)
    (expected,) = torch.autograd.grad((soft * weights).sum(), x)
    assert torch.allclose(to_x, expected, atol=1e-3)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_counts_a_batch_once(reentrant):
    router, alone = BalancedRouter(5, 2), BalancedRouter(5, 2)
    for seed in (0, 1):
        x = skewed(seed=seed).requires_grad_()
        checkpoint(router, x, use_reentrant=reentrant).square().sum().backward()
        alone(skewed(seed=seed))
    assert router.batches == alone.batches == 2
    assert torch.allclose(router.bias, alone.bias)


def test_batches_that_teach_nothing_leave_the_bias():
    router = BalancedRouter(5, 2)
    router(skewed())
    before = router.bias.clone()
    with torch.no_grad():
        router(skewed(seed=1))
    router(torch.full((8, 5), torch.nan))
    assert router.batches == 1
    assert torch.equal(router.bias, before)


def test_a_router_in_half_precision_keeps_the_digits_of_its_bias():
    router, same = BalancedRouter(5, 2), BalancedRouter(5, 2)
    x = skewed(dtype=torch.bfloat16)
    for _ in range(2):
        router.to(torch.bfloat16)
        assert router(x).dtype == torch.bfloat16
        same(x)
    assert torch.equal(router.bias, same.bias)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_experts": 4, "k": 5}, "k must be between 0 and 4"),
        ({"num_experts": 4, "k": 1, "capacity_factor": 0.9}, "capacity_factor must be at least 1, got 0.9"),
        ({"num_experts": 4, "k": 1, "tau": 0.0}, "tau must be positive, got 0.0"),
        ({"num_experts": 4, "k": 1.5, "hard": True}, "k must be a whole number"),
    ],
)
def test_router_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        BalancedRouter(**settings)


def test_router_refuses_another_number_of_experts():
    with pytest.raises(ValueError, match=r"4 experts along its last dim, got shape \(3, 5\)"):
        BalancedRouter(4, 1)(torch.zeros(3, 5))


def test_a_router_constructed_in_inference_mode_is_trained():
    with torch.inference_mode():
        router = BalancedRouter(5, 2)
    router(skewed().requires_grad_()).square().sum().backward()
    assert router.batches == 1


@pytest.mark.parametrize("assign", [False, True])
def test_a_checkpoint_in_half_precision_is_trained_further_with_all_digits(assign):
    router = BalancedRouter(5, 2)
    router(skewed())
    saved = {name: value.bfloat16() for name, value in router.state_dict().items()}
    router.load_state_dict(saved, assign=assign)
    assert router.bias.dtype == router.batches.dtype == torch.float32


@pytest.mark.parametrize("hard", [False, True])
def test_a_router_may_keep_to_the_capacity_in_eval_mode_too(hard):
    """The tokens at hand are others than those that it has learned its biases from."""
    router = BalancedRouter(8, 2, tau=0.1, hard=hard, balance_in_eval=True)
    router(skewed(512, 8, dtype=torch.float32))
    bias, new = router.bias.clone(), skewed(512, 8, 1, torch.float32).flip(-1)
    router.eval()
    y = router(new)
    torch.testing.assert_close(router.bias, bias, rtol=0, atol=0)
    assert router.batches == 1
    torch.testing.assert_close(y.sum(-1), torch.full((512,), 2.0))
    assert y.sum(0).max() <= 128 * (1.05 if hard else 1 + 1e-5)
    router.balance_in_eval = False
    assert router(new).sum(0).max() > 256
    router.balance_in_eval = True
    soft, _ = soft_assignment(new, 2, 128.0, 0.1)
    if not hard:
        torch.testing.assert_close(y, soft, rtol=0, atol=1e-4)
    assert router(new[:0]).shape == (0, 8)


def served_on_ranks(group, parts):
    router = BalancedRouter(5, 2, tau=0.4, group=group, balance_in_eval=True).eval()
    with torch.no_grad():
        return router(skewed().split(parts)[torch.distributed.get_rank(group)]).sum(0), router.batches


def test_ranks_share_a_capacity_in_eval_mode():
    results = ranks.run(3, served_on_ranks, [10, 0, 20])
    torch.testing.assert_close(sum(load for load, _ in results), torch.full((5,), 12.0, dtype=DOUBLE))
    assert [batches for _, batches in results] == [0, 0, 0]
