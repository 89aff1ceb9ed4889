"""What a page takes as given: the names its code uses and does not define."""

from collections.abc import Callable
from typing import Any


def ranks() -> dict[str, Any]:
    """One rank: the code is the same on many, and tests/torch/test_distributed.py runs it there."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import hypersimplex.torch

    network = nn.Linear(20, 4)
    return {
        **vars(hypersimplex.torch),
        "DistributedDataParallel": DistributedDataParallel,
        "network": network,
        "optimizer": torch.optim.Adam(network.parameters()),
        "x": torch.randn(8192, 20),
        "y": torch.randint(4, (8192,)),
    }


def jax_names() -> dict[str, Any]:
    import jax.numpy as jnp
    import numpy as np

    import hypersimplex.jax

    rng = np.random.default_rng(0)
    logits, labels = jnp.asarray(rng.normal(size=(32, 5)), jnp.float32), jnp.asarray(rng.integers(5, size=32))
    return {**vars(hypersimplex.jax), "num_classes": 5, "logits": logits, "labels": labels}


def rare() -> dict[str, Any]:
    """Rows of which one in thirty is positive, and hard to tell from its neighbors."""
    from sklearn.datasets import make_classification

    x, y = make_classification(4000, weights=[0.97], class_sep=0.5, flip_y=0.01, random_state=0)
    return {"x": x[:3000], "y": y[:3000], "test_x": x[3000:]}


GIVENS: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/jax.md": jax_names,
    "docs/large-batches.md": ranks,
    "docs/rare-classes.md": rare,
}
# What a page needs beyond the default environment, and the command that has it.
NEEDS = {
    "docs/boosting.md": ("lightgbm", "make test-docs"),
    "docs/jax.md": ("jax", "make test-docs"),
    "docs/migration/entmax.md": ("entmax", "make test-docs"),
    "docs/migration/jaxopt.md": ("jax", "make test-docs"),
    "docs/migration/lightgbm.md": ("lightgbm", "make test-docs"),
    "docs/rare-classes.md": ("lightgbm", "make test-docs"),
    "docs/sklearn.md": ("lightgbm", "make test-docs"),
}
