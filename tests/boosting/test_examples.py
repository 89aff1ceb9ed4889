"""The examples run as a reader would run them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "needs", "result"),
    [
        ("lightgbm_native", ["lightgbm"], "test error 0."),
        ("sklearn_pipeline", ["lightgbm", "sklearn"], "accuracy on held-out rows 0.9"),
        ("xgboost_dask", ["xgboost", "distributed"], "test error 0."),
    ],
)
def test_example(name, needs, result):
    for module in needs:
        pytest.importorskip(module)
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    assert result in run.stdout


def test_benchmark():
    for module in ("lightgbm", "torch"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "benchmarks.boosting", "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=EXAMPLES.parent)
    assert run.returncode == 0, run.stderr
    assert "HyperSimplexObjective" in run.stdout
