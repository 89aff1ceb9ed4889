"""The formulas that the retrieval recipe is compared with are those of pytorch-metric-learning."""

import importlib
from pathlib import Path

import pytest
import torch

losses = pytest.importorskip("pytorch_metric_learning.losses")

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"


@pytest.mark.parametrize("setting", [0.05, 0.5])
def test_the_peers_are_those_of_pytorch_metric_learning(monkeypatch, setting):
    monkeypatch.syspath_prepend(str(RECIPES))
    recipe = importlib.import_module("retrieval")
    generator = torch.Generator().manual_seed(0)
    embedded = torch.nn.functional.normalize(torch.randn(60, 16, generator=generator))
    y = torch.randint(0, 5, (60,), generator=generator)
    torch.testing.assert_close(
        recipe.nt_xent(embedded, y, setting), losses.NTXentLoss(temperature=setting)(embedded, y)
    )
    expected = losses.MultiSimilarityLoss(alpha=2, beta=50, base=setting)(embedded, y)
    torch.testing.assert_close(recipe.multi_similarity(embedded, y, setting), expected)
