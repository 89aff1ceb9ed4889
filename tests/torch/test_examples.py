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


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"this example runs where {package} is installed: pip install {package}")


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


@needs("lightning")
# Lightning advises on workers and warns about its own dependencies.
@pytest.mark.filterwarnings("ignore")
def test_lightning():
    found = load("lightning_example").run()
    assert found["predict"] > 0.94
    assert found["predict"] > found["plain argmax"] + 0.02


@needs("transformers")
@needs("accelerate")
# transformers warns about its own dependencies.
@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer():
    found = load("huggingface_trainer").run()
    assert found["predict"] > 0.8
    assert found["predict"] > found["plain argmax"]
