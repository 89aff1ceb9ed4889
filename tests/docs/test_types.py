"""A type checker accepts the code of the README and of the recipes, as an editor would show it."""

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT, blocks, name

pytest.importorskip("mypy")
pytest.importorskip("torch")

PAGES = [ROOT / "README.md", ROOT / "docs/index.md", *sorted((ROOT / "docs/recipes").glob("*.md"))]
WRONG = """import torch
from hypersimplex.torch import HyperSimplexLoss, soft_topk

soft_topk("scores", k=2)
HyperSimplexLoss(num_classes="three")
soft_topk(torch.zeros(3), k=2, axis=0)
"""
# torch says that a gradient may be None, and a page may use one name for two things.
OPTIONS = "--ignore-missing-imports --allow-redefinition --disable-error-code=union-attr --disable-error-code=no-redef"


def test_the_code_of_the_readme_and_the_recipes(tmp_path):
    files = {page: name(page).replace("/", "_").replace("-", "_").removesuffix(".md") + ".py" for page in PAGES}
    for page, file in files.items():
        code = "\n".join(block.code for block in blocks(page, "python"))
        (tmp_path / file).write_text(code, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", *OPTIONS.split(), "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    checked = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert [line for line in errors if not line.startswith("wrong.py")] == []
    assert [line.split(":")[1] for line in errors] == ["4", "5", "6"], checked.stdout + checked.stderr
