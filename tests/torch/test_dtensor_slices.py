"""DTensors that are sharded along their slices, on real ranks; and one budget over the parameters that FSDP2 shards."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hypersimplex.torch import binary_argmax, soft_topk, threshold
from tests.torch.losses import normal
from tests.torch.ranks import ranks
from tests.torch.test_dtensor import mesh_of, partial_sums, spread


def both(x, k, tau, v, u, dim, make, **arguments):
    """Results and gradients of the operator, its threshold and the choice; `make` shards, or does not."""
    leaf, k, tau = make(x).requires_grad_(), k.clone().requires_grad_(), tau.clone().requires_grad_()
    y, mu = soft_topk(leaf, k, tau, dim, **arguments), threshold(leaf, k, tau, dim, **arguments)
    ((y * make(v)).sum() + (mu * u).sum()).backward()
    hard = soft_topk(leaf, 2, dim=dim, hard=True, **arguments)
    chosen = binary_argmax(leaf.detach(), torch.full_like(k, 2).detach(), dim)
    return y, mu, hard, chosen, leaf.grad, k.grad, tau.grad


def along(group, shape, dim, curve):
    mesh, x, v = mesh_of(group), normal(*shape), normal(*shape, seed=1)
    slices = [size for at, size in enumerate(shape) if at != dim]
    count = math.prod(slices)
    k, u = (t.reshape(slices) for t in (torch.linspace(0.5, 4.5, count, dtype=x.dtype), normal(count, seed=2)))
    tau = torch.tensor(0.5, dtype=x.dtype)
    expected = both(x, k, tau, v, u, dim, lambda t: t.detach().clone(), curve=curve)
    got = both(x, k, tau, v, spread(u, mesh, "replicate"), dim, lambda t: spread(t, mesh, "shard", dim), curve=curve)
    assert got[0].placements == got[4].placements == spread(x, mesh, "shard", dim).placements
    for found, wanted in zip(got, expected, strict=True):
        found = found.full_tensor() if hasattr(found, "full_tensor") else found
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("shape", "dim"), [((7, 5), 0), ((7, 5), 1), ((9,), 0), ((2, 7, 3), 1)])
def test_sharded_along_its_slices(shape, dim):
    ranks.run(2, along, shape, dim, "ramp")


@pytest.mark.parametrize("curve", ["exp", "logistic", "laplace"])
def test_every_curve(curve):
    ranks.run(3, along, (4, 7), 1, curve)


def two_dims(_):
    """Rows over one dim of the mesh, and their entries over the other."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh, x, k = init_device_mesh("cpu", (2, 2)), normal(5, 7), torch.linspace(0.5, 6.0, 5)
    parts = distribute_tensor(x, mesh, [Shard(0), Shard(1)]).requires_grad_()
    leaf = x.clone().requires_grad_()
    y, expected = soft_topk(parts, k), soft_topk(leaf, k)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(y.full_tensor(), expected)
    torch.testing.assert_close(parts.grad.full_tensor(), leaf.grad)
    torch.testing.assert_close(threshold(parts, k).full_tensor(), threshold(x, k))
    said = []
    for bad in (distribute_tensor(x, mesh, [Shard(1), Shard(1)]), partial_sums(x, mesh_of(dist.group.WORLD))):
        with pytest.raises(ValueError, match="input must be sharded") as caught:
            soft_topk(bad, 2)
        said.append(str(caught.value))
    with pytest.raises(ValueError, match="group must be None for a DTensor, whose mesh says which ranks share a slice"):
        soft_topk(parts, 2, group=True)
    return said


def test_a_mesh_of_two_dims():
    for said in ranks.run(4, two_dims):
        assert said[0].startswith("input must be sharded along dim -1 over one dim of the mesh, got [Shard(dim=1), S")
        assert said[1] == "input must be sharded or replicated (its redistribute does so), got [Partial(sum)]"


def moved(group):
    """What redistribute gives may still be under way."""
    mesh, x = mesh_of(group), normal(6, 4)
    for requires_grad in (False, True):
        rows = spread(x, mesh, "shard", 0).requires_grad_(requires_grad)
        columns = rows.redistribute(placements=spread(x, mesh, "shard", 1).placements)
        torch.testing.assert_close(soft_topk(columns, 2).full_tensor(), soft_topk(x, 2))


def test_a_tensor_that_was_just_redistributed():
    ranks.run(2, moved)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)).double()


def gates(parameters, k, **group):
    """One budget over all weights: the absolute values of those of this rank, one after the other."""
    sizes = [p.numel() for p in parameters]
    y = soft_topk(torch.cat([p.abs().flatten() for p in parameters]), k, 0.1, **group)
    return [part.view_as(p) for part, p in zip(y.split(sizes), parameters, strict=True)]


def fsdp(group):
    from torch.distributed.fsdp import fully_shard

    mesh = mesh_of(group)
    net = fully_shard(model(), mesh=mesh)
    parameters = list(net.parameters())
    assert all(p.placements[0].is_shard(0) for p in parameters)
    local = [p.to_local() for p in parameters]
    own = gates(local, 20, group=group)
    sum((gate * p.square()).sum() for gate, p in zip(own, local, strict=True)).backward()
    # A bias is one slice by itself: a DTensor that is sharded along it.
    bias = soft_topk(parameters[1].detach(), 2, 0.1).full_tensor()
    return [p.grad.full_tensor() for p in parameters], float(sum(gate.detach().sum() for gate in own)), bias


def test_one_budget_over_all_parameters_that_fsdp_shards():
    whole = model()
    parameters = list(whole.parameters())
    sum((gate * p.square()).sum() for gate, p in zip(gates(parameters, 20), parameters, strict=True)).backward()
    answers = ranks.run(2, fsdp)
    for gradients, _, bias in answers:
        for got, p in zip(gradients, parameters, strict=True):
            assert p.grad.abs().max() > 1e-3
            torch.testing.assert_close(got, p.grad, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(bias, soft_topk(parameters[1].detach(), 2, 0.1))
    assert abs(sum(kept for _, kept, _ in answers) - 20) < 1e-9
