"""One batch on two ranks: scikit-learn's digits, trained with DistributedDataParallel and group=True.

Run with `torchrun --nproc-per-node 2 examples/torchrun_two_ranks.py`. Each rank reads every second sample; the loss is
that of the joined batch, so both ranks end with the same weights and the same thresholds as one process would.
"""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hypersimplex.torch import HyperSimplexLoss


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1500], order[1500:]
    return x[train], y[train], x[test], y[test]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # "nccl" where the ranks have GPUs; nothing else changes
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y, test_x, test_y = load()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    criterion = HyperSimplexLoss(num_classes=10, group=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(8):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(256):  # the last one is smaller, and may be of uneven size
            own = batch[rank::size]
            optimizer.zero_grad()
            loss = criterion(model(x[own]), y[own])
            loss.backward()
            optimizer.step()
    criterion.eval()
    with torch.no_grad():
        accuracy = (criterion.predict(network(test_x)) == test_y).float().mean()
    print(
        f"rank {rank}: loss {loss:.4f}, accuracy {accuracy:.3f}, thresholds {criterion.threshold.sum():.4f}", flush=True
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # A thread of gloo that is late may abort a process whose interpreter goes down: https://github.com/pytorch/pytorch/issues/190489
    os._exit(0)
