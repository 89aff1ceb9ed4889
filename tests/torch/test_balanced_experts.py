"""The recipe of balanced experts runs on the digits, and its router holds what it promises."""

import importlib.util
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).parents[2] / "examples/recipes/balanced_experts.py"


def recipe():
    spec = importlib.util.spec_from_file_location("balanced_experts", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_way_learns_and_is_measured(tmp_path):
    script = recipe()
    name, images = script.read("fashion-mnist", str(tmp_path), 1000)
    assert name == "digits"
    for way, (strength, *_) in script.WAYS.items():
        found = script.measure(script.train(images.train, way, strength, 3e-3, 0, 4), images.test)
        assert found["accuracy inf"] > 60
        assert found["dropped inf"] == 0
        assert found["dropped 1.0"] >= found["dropped 1.25"] >= 0


def test_experts_drop_what_exceeds_their_capacity():
    experts = recipe().Experts("auxiliary loss", 0.1).eval()
    x = torch.randn(64, 96)
    whole, none = experts(x), experts(x, capacity=0)
    assert torch.equal(none, x)
    assert not torch.equal(whole, x)
    assert (experts.chosen.sum(1) == 2).all()
