"""DTensors and FSDP2 on two real ranks: the results are those of the whole tensor in one process."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from hypersimplex.torch import HyperSimplexLoss, binary_argmax, hypersimplex_loss, soft_binary_argmax, threshold
from tests.torch.losses import labels_of, normal
from tests.torch.ranks import ranks

PLACES = ["shard", "replicate"]


def mesh_of(group):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(group, "cpu")


def spread(value, mesh, place, dim=0):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    return distribute_tensor(value.detach().clone(), mesh, [Shard(dim) if place == "shard" else Replicate()])


def partial_sums(value, mesh):
    from torch.distributed.tensor import DTensor, Partial

    return DTensor.from_local(value, mesh, [Partial()])


def operator(group, place):
    """Seven rows on two ranks: uneven."""
    mesh, x, v = mesh_of(group), normal(7, 5), normal(7, 5, seed=1)
    k = torch.linspace(0.5, 4.0, 7, dtype=x.dtype)
    whole, given = x.clone().requires_grad_(), k.clone().requires_grad_()
    (soft_binary_argmax(whole, given, 0.5) * v).sum().backward()
    parts, k_parts = spread(x, mesh, place).requires_grad_(), k.clone().requires_grad_()
    y = soft_binary_argmax(parts, k_parts, 0.5)
    assert y.placements == parts.placements
    (y * spread(v, mesh, place)).sum().backward()
    pairs = [
        (y.full_tensor(), soft_binary_argmax(x, k, 0.5)),
        (parts.grad.full_tensor(), whole.grad),
        (k_parts.grad, given.grad),
        (threshold(parts.detach(), k, 0.5).full_tensor(), threshold(x, k, 0.5)),
        (binary_argmax(parts.detach(), 2).full_tensor(), binary_argmax(x, 2)),
    ]
    for got, expected in pairs:
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("place", PLACES)
def test_the_operator(place):
    ranks.run(2, operator, place)


def losses(group, place, reduction, dense):
    mesh, x = mesh_of(group), normal(7, 5)
    target = normal(7, 5, seed=2).sigmoid() if dense else labels_of(7, classes=5)
    whole, alone = x.clone().requires_grad_(), HyperSimplexLoss(num_classes=5, reduction=reduction).double()
    expected = alone(whole, target)
    expected.sum().backward()
    parts, criterion = spread(x, mesh, place).requires_grad_(), copy.deepcopy(alone)
    criterion.reset_parameters()
    got = criterion(parts, spread(target, mesh, place))
    torch.testing.assert_close(got.full_tensor(), expected)
    got.sum().backward()
    torch.testing.assert_close(parts.grad.full_tensor(), whole.grad)
    assert whole.grad.abs().max() > 1e-3
    torch.testing.assert_close(criterion.state_dict(), alone.state_dict())


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dense", [False, True])
def test_the_loss(place, reduction, dense):
    ranks.run(2, losses, place, reduction, dense)


def refusals(group):
    mesh, x, y = mesh_of(group), normal(6, 4), labels_of(6, classes=4)
    columns, rows = spread(x, mesh, "shard", 1), spread(x, mesh, "shard")
    said = []
    for call in (
        lambda: soft_binary_argmax(partial_sums(x, mesh), 2),
        lambda: hypersimplex_loss(columns, spread(y, mesh, "replicate")),
        lambda: hypersimplex_loss(rows, y),
        lambda: hypersimplex_loss(rows, spread(y, mesh, "shard"), group=True),
    ):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        said.append(str(error.value))
    return said


def test_what_cannot_be_served_is_named():
    expected = [
        "input must be sharded or replicated (its redistribute does so), got [Partial(sum)]",
        "input must be sharded along dim 0 over one dim of the mesh, or replicated, got ",
        "target must be a DTensor as input is, got Tensor",
        "group must be None for a DTensor, whose mesh says which ranks share the batch, got True",
    ]
    for said in ranks.run(2, refusals):
        assert [text[: len(start)] for text, start in zip(said, expected, strict=True)] == expected


class Model(nn.Module):
    def __init__(self, group=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        self.criterion = HyperSimplexLoss(num_classes=3, group=group)

    def forward(self, x, y):
        return self.criterion(self.net(x), y)


def train(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()
    return model


def fsdp(group, folder):
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    mesh, rank = mesh_of(group), dist.get_rank(group)
    x, y = normal(20, 6, dtype=torch.float32), labels_of(20, classes=3)
    model = train(fully_shard(Model(group), mesh=mesh), x.split(10)[rank], y.split(10)[rank])
    dcp.save(get_model_state_dict(model), checkpoint_id=folder, process_group=group)
    fresh = fully_shard(Model(group), mesh=mesh)
    state = get_model_state_dict(fresh)
    dcp.load(state, checkpoint_id=folder, process_group=group)
    set_model_state_dict(fresh, state)
    for name, value in model.criterion.state_dict().items():
        assert torch.equal(fresh.criterion.state_dict()[name], value), name
    whole = {name: value.full_tensor().detach() for name, value in fresh.net.named_parameters()}
    return dict(fresh.criterion.state_dict()), whole


# torch's own words on saving: storages and pickled files
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_fsdp_with_a_distributed_checkpoint(tmp_path):
    expected = train(Model(), normal(20, 6, dtype=torch.float32), labels_of(20, classes=3))
    for state, parameters in ranks.run(2, fsdp, str(tmp_path)):
        assert state["samples"] == 60
        torch.testing.assert_close(state, dict(expected.criterion.state_dict()), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(parameters, dict(expected.net.state_dict()), rtol=1e-4, atol=1e-5)
