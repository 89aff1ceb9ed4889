"""BatchTopK over ranks, and a loss that revives dead latents: one budget for the joined batch of two processes.

Run with `python examples/recipes/batch_topk_ranks.py`; it starts two processes with gloo and takes some ten seconds.
"""

import multiprocessing
import tempfile

import torch
import torch.distributed as dist
from _digits import digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hypersimplex.torch import soft_topk

RANKS, LATENTS, PER_SAMPLE, TAU, STEPS, BATCH = 2, 256, 6, 0.1, 200, 256
DEAD_AFTER, REVIVED, WEIGHT = 20, 32, 1 / 32  # steps without being chosen; dead latents per sample; of their loss


class SparseAutoencoder(nn.Module):
    unused: Tensor

    def __init__(self, inputs: int = 64) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(inputs, LATENTS), nn.Linear(LATENTS, inputs)
        self.register_buffer("unused", torch.zeros(LATENTS))  # steps since any rank chose it

    def forward(self, x: Tensor, revive: bool) -> tuple[Tensor, Tensor]:
        before = self.encoder(x)
        values = before.relu()
        # k counts the samples of all ranks, which may have different numbers of them.
        chosen = soft_topk(values.flatten(), PER_SAMPLE * BATCH, TAU, hard=True, group=True).view_as(values)
        active = values * chosen
        missing = x - self.decoder(active)
        loss = self._mean(missing)
        dead = self.unused >= DEAD_AFTER
        if revive and (k := min(REVIVED, int(dead.sum()))):
            scores = before.masked_fill(~dead, -torch.inf)
            second = soft_topk(scores, k, TAU, hard=True) * before.relu()
            loss = loss + WEIGHT * self._mean(missing.detach() - second @ self.decoder.weight.T)
        return loss, (active > 0).float()

    @staticmethod
    def _mean(missing: Tensor) -> Tensor:
        """Of the whole batch, once DistributedDataParallel has averaged the gradients of the ranks."""
        return missing.square().sum() * RANKS / (BATCH * missing.shape[1])

    @torch.no_grad()
    def count(self, used: Tensor) -> None:
        total = used.sum(0)
        dist.all_reduce(total)
        self.unused = torch.where(total > 0, 0.0, self.unused + 1)


def work(rank: int, folder: str) -> dict[bool, tuple[float, float, float, float]]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    x = digits()[0]
    x = x - x.mean(0)
    return {revive: train(x, rank, revive) for revive in (False, True)}


def train(x: Tensor, rank: int, revive: bool) -> tuple[float, float, float, float]:
    torch.manual_seed(0)
    model = SparseAutoencoder()
    model.encoder.bias.data[LATENTS // 2 :] -= 3.0  # half of the latents begin dead
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        batch = x[torch.randint(len(x), (BATCH,))]  # the same on both ranks
        own = batch[: BATCH // 4] if rank == 0 else batch[BATCH // 4 :]  # of uneven size
        optimizer.zero_grad()
        loss, used = parallel(own, revive)
        loss.backward()
        optimizer.step()
        model.count(used)
    with torch.no_grad():
        active = model.encoder(batch).relu()
        chosen = soft_topk(active.flatten(), PER_SAMPLE * BATCH, TAU, hard=True).view_as(active)
        missing = (batch - model.decoder(active * chosen)).square().mean() / batch.square().mean()
        values = model.encoder(own).relu()
        part = soft_topk(values.flatten(), PER_SAMPLE * BATCH, TAU, hard=True, group=True).view_as(values)
        same = torch.equal(chosen[: BATCH // 4] if rank == 0 else chosen[BATCH // 4 :], part)
    return float(chosen.sum() / BATCH), float((model.unused >= DEAD_AFTER).sum()), float(1 - missing), float(same)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(RANKS) as pool:
        found = pool.starmap(work, [(rank, folder) for rank in range(RANKS)], chunksize=1)
    for revive, name in ((False, "without the loss for dead latents"), (True, "with the loss for dead latents")):
        mean, dead, explained, _ = found[0][revive]
        same = all(one[revive][3] for one in found)
        print(f"{name:34} {mean:.2f} per sample, dead {dead:3.0f}, explained {explained:.3f}")
        print(f"  chosen on two ranks as in one process: {same}")


if __name__ == "__main__":
    main()
