"""scikit-learn's digits as tensors: 1797 images of 8 x 8 pixels, of which 1200 are for training."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor

TRAIN = 1200


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images between 0 and 1 and labels, for training and for testing."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    return x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:]
