"""Pruning with one budget over a model that is sharded over ranks by FSDP2: no weight leaves its rank.

Run with `python examples/recipes/sharded_pruning.py`; it starts two processes with gloo and takes some ten seconds.
"""

import multiprocessing
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from _digits import digits
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from hypersimplex.torch import binary_argmax

RANKS, KEPT, STEPS, SIZE = 2, 851, 150, 256


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def shards(model: Any) -> list[Tensor]:
    """This rank's part of every weight; writing to it changes the model."""
    return [layer.weight.data.to_local() for layer in model.modules() if isinstance(layer, nn.Linear)]


def one_budget(model: Any) -> list[Tensor]:
    """A mask for each shard: KEPT ones among all weights of all ranks."""
    parts = shards(model)
    mask = binary_argmax(torch.cat([part.abs().flatten() for part in parts]), KEPT, group=True)
    return [m.view_as(part) for m, part in zip(mask.split([p.numel() for p in parts]), parts, strict=True)]


def train(model: Any, masks: list[Tensor] | None, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    random = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        batch = torch.randint(len(x), (SIZE // RANKS,), generator=random)
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        if masks is not None:
            for part, mask in zip(shards(model), masks, strict=True):
                part.mul_(mask)


@torch.no_grad()
def accuracy(model: Any, x: Tensor, y: Tensor) -> float:
    right: float = (model(x).argmax(1) == y).double().mean().item()
    model.reshard()  # FSDP2 keeps the whole weights for a backward pass, which does not come
    return right


def gathered(model: Any) -> Tensor:
    """All weights on every rank: only to compare with. This is what the budget above does without."""
    weights = [layer.weight.full_tensor() for layer in model.modules() if isinstance(layer, nn.Linear)]
    return torch.cat([weight.detach().flatten() for weight in weights])


def work(rank: int, folder: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    x, y, test_x, test_y = digits()
    torch.manual_seed(0)
    model = fully_shard(network(), mesh=init_device_mesh("cpu", (RANKS,)))
    train(model, None, x, y)
    found: dict[str, Any] = {"dense": accuracy(model, test_x, test_y)}
    cut = gathered(model).abs().topk(KEPT).values[-1]
    masks = one_budget(model)
    for part, mask in zip(shards(model), masks, strict=True):
        part.mul_(mask)
    found["pruned"] = accuracy(model, test_x, test_y)
    whole = gathered(model)
    found["kept"] = int((whole != 0).sum())
    found["largest"] = bool(whole[whole != 0].abs().min() == cut)
    train(model, masks, x, y)
    found["trained on"] = accuracy(model, test_x, test_y)
    found["here"] = [int(mask.sum()) for mask in masks]
    found["entries"] = sum(mask.numel() for mask in masks)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(RANKS) as pool:
        found = pool.starmap(work, [(rank, folder) for rank in range(RANKS)], chunksize=1)
    for rank, one in enumerate(found):
        print(f"rank {rank}: {one['entries']} weights, of which kept by layer {' + '.join(map(str, one['here']))}")
    print(f"kept in all: {found[0]['kept']}, the largest of all weights: {found[0]['largest']}")
    for name in ("dense", "pruned", "trained on"):
        print(f"accuracy, {name:12} {found[0][name]:.3f}")


if __name__ == "__main__":
    main()
