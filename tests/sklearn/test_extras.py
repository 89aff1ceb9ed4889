"""What a missing library's message says to install is enough for the estimator that missed it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NAMED = re.compile(r"(?:hypersimplex|'\.)\[([a-z,]+)\]")
WITHOUT = """
import sys, types
def refuse(name, *_):
    if name.partition(".")[0] == {missing!r}:
        raise ModuleNotFoundError(name)
sys.meta_path.insert(0, types.SimpleNamespace(find_spec=refuse))
from hypersimplex.sklearn import {estimator}
"""


@pytest.mark.parametrize(
    ("missing", "package", "estimator"),
    [
        ("sklearn", "scikit-learn", "HyperSimplexMLPClassifier"),
        ("lightgbm", "lightgbm", "HyperSimplexLGBMClassifier"),
        ("xgboost", "xgboost", "HyperSimplexXGBClassifier"),
        ("torch", "torch", "HyperSimplexMLPClassifier"),
    ],
)
def test_the_packages_that_are_named_are_enough(missing, package, estimator):
    code = WITHOUT.format(missing=missing, estimator=estimator)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    _, error, message = said.rpartition("\nModuleNotFoundError: ")
    assert error, said
    named = set(re.findall(r"'([\w-]+)", message.partition("pip install ")[2]))
    assert {package, "scikit-learn"} <= named
    assert ("xgboost" in named) == (missing == "xgboost")  # a large download, for who wants it


@pytest.mark.parametrize("folder", ["src", "docs", "examples", "benchmarks"])
def test_every_extra_that_is_named_exists(folder):
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".ipynb")]
    assert files
    for path in [*files, ROOT / "README.md"]:
        for found in NAMED.findall(path.read_text()):
            assert set(found.split(",")) <= EXTRAS.keys(), path
