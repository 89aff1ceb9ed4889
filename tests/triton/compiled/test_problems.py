"""Random problems for the compiled kernels: short and long slices along the last dim, a middle one and the first.

HYPERSIMPLEX_PROBLEMS=5 draws five times as many.
"""

import os

import numpy as np
import pytest
import torch

from hypersimplex.torch._batch import Batch, Settings
from hypersimplex.torch.backends.triton import _backend
from tests.frontends import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, to_torch, tolerance
from tests.triton.agreement import loses, projects, pulls_back

SEEDS = range(int(os.environ.get("HYPERSIMPLEX_PROBLEMS", "1")))
SHAPES = [((9, 37), 1), ((2, 700), 1), ((33, 5), 0), ((300, 3), 0), ((2, 19, 3), 1), ((1, 1), 1)]

dtypes = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, FLOAT16, BFLOAT16], ids=str)
seeds = pytest.mark.parametrize("seed", SEEDS)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A tile of 128 entries: 300 are then many tiles."""
    monkeypatch.setattr(_backend, "TILE", 128)
    monkeypatch.setattr(_backend, "LEAST", 128)


@seeds
@dtypes
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_projections_and_their_gradients(device, dtype, shape, dim, seed):
    rng = np.random.default_rng([seed, *shape])
    x = rng.normal(scale=rng.choice([0.3, 1, 5]), size=shape)
    if rng.random() < 0.5:
        x = np.round(x, 1)  # ties
    if shape[dim] > 1:
        x[rng.random(shape) < 0.05] = -np.inf
    x, v = x.astype(dtype), rng.normal(size=shape).astype(dtype)
    slices = tuple(np.delete(shape, dim))
    k = rng.uniform(0, 0.8, slices) * np.isfinite(x.astype(float)).sum(dim)
    if rng.random() < 0.5:
        k = np.round(k)
    tau = rng.uniform(0.3, 2, slices)
    y = projects(x, k, tau, dim, device)
    pulls_back(y, v, tau, dim, device)


@seeds
@dtypes
@pytest.mark.parametrize("dense", [False, True], ids=["labels", "dense"])
@pytest.mark.parametrize("samples", [45, 300])
def test_losses(device, dtype, samples, dense, seed):
    rng = np.random.default_rng([seed, samples])
    x = to_torch(rng.normal(size=(samples, 5)).astype(dtype)).to(device)
    labels = rng.integers(0, 4, size=samples)  # class 4 is absent
    target = np.eye(5)[labels] * 0.8 + 0.05
    labels[rng.random(samples) < 0.1] = -100
    given = torch.from_numpy(target).to(x.dtype) if dense else torch.from_numpy(labels)
    weight, tau = (torch.from_numpy(rng.uniform(0.5, 2, 5)).to(device) for _ in range(2))
    reduction = ("mean", "sum")[seed % 2]
    settings = Settings(weight.float(), -100, reduction, None, None, tau)
    loses(Batch(x, given.to(device), dense, (samples,)), settings, tolerance(dtype) * (samples if seed % 2 else 1))
