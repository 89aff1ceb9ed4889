"""The notebooks as they are committed: run from the first cell to the last, without an error, and short."""

import json

import pytest

from tests.docs.pages import ROOT, name

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_outputs_are_of_one_run(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell["outputs"]):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", "".join(output["text"])
    assert sum(len(cell["source"]) for cell in cells) < 150, "short examples"


def test_each_is_listed():
    page = (ROOT / "docs/notebooks/index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 5
    assert all(f"({path.name})" in page for path in NOTEBOOKS)
