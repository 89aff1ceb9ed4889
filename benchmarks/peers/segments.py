"""Soft top-k of 10,000 segments of 1 to 200 entries, beside the same rows padded with -inf.

    python -m benchmarks.peers.segments [--rounds 20]

Padding counts with what it takes: the rows are filled, projected, and their entries taken out again.
"""

import argparse

import torch
from torch import Tensor

from benchmarks.timing import interleave, microseconds, ratio
from hypersimplex.torch import soft_topk, soft_topk_segments


def padded(x: Tensor, k: Tensor, inside: Tensor) -> Tensor:
    rows = torch.full(inside.shape, -torch.inf).masked_scatter(inside, x)
    return soft_topk(rows, k)[inside]


def table(rounds: int) -> None:
    torch.manual_seed(0)
    sizes = torch.randint(1, 201, (10_000,))
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)))
    k, x = sizes * torch.rand(10_000), torch.randn(int(offsets[-1]))
    inside = torch.arange(200) < sizes.unsqueeze(1)
    wanted = padded(x, k, inside)
    torch.testing.assert_close(soft_topk_segments(x, k, offsets), wanted, rtol=0, atol=1e-6)
    v = torch.randn_like(x)
    print("| step | segments | padded | ratio |\n| --- | ---: | ---: | ---: |")
    for backward in (False, True):
        x.requires_grad_(backward)

        def run(y: Tensor, backward: bool = backward) -> object:
            return torch.autograd.grad(y, x, v) if backward else y

        steps = {
            "segments": lambda: run(soft_topk_segments(x, k, offsets)),
            "padded": lambda: run(padded(x, k, inside)),
        }
        times = interleave(steps, rounds)
        cells = " | ".join(f"{microseconds(times, name) / 1000:.2f} ms" for name in steps)
        print(f"| {'with gradient' if backward else 'forward'} | {cells} | {ratio(times, 'padded', 'segments'):.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    table(parser.parse_args().rounds)


if __name__ == "__main__":
    main()
