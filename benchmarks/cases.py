"""The shapes that are timed, and the numbers in them."""

import torch
from torch import Tensor

Case = tuple[tuple[int, int], int]

# Shapes, and the dim along which the slices lie.
CASES: list[Case] = [((10, 128), 1), ((10, 8192), 1), ((8192, 10), 0), ((4096, 64), 1), ((1024, 1000), 1)]
LARGE: list[Case] = [((1, 10**6), 1), ((1, 10**7), 1)]


def problem(shape: tuple[int, int], scale: float = 1, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Float32 numbers to project, and a gradient to send back."""
    generator = torch.Generator().manual_seed(0)
    x, v = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
    return scale * x, v


def size(shape: tuple[int, int]) -> str:
    return f"({shape[0]}, {count(shape[1])})"


def count(n: int) -> str:
    power = len(str(n)) - 1
    return f"10^{power}" if n == 10**power and power > 4 else str(n)
