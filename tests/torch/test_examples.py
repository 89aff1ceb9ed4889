"""The loss's examples run, and show what they say."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [0, 1])
def test_plain_argmax_fails_where_thresholds_succeed(seed):
    found = load("train_loop").accuracies(seed)
    assert found["HyperSimplex, plain argmax of the logits"] < 0.9
    assert found["HyperSimplex, predict"] > 0.95
    assert found["HyperSimplex, argmax of the folded model"] == found["HyperSimplex, predict"]
    assert found["cross-entropy, argmax"] > 0.95


def test_the_plain_loop_prints_its_table(capsys):
    load("train_loop").main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(0.5 < float(line.split()[-1]) <= 1 for line in lines)
