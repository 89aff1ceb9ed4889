"""The type stub is what the compiled module says of itself."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "csrc" / "stub.py"


def test_the_stub_is_current():
    pytest.importorskip("nanobind.stubgen")
    spec = importlib.util.spec_from_file_location("stub", SCRIPT)
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)

    def bare(text: str) -> str:
        return "".join(text.split()).replace(",)", ")")

    assert bare(stub.STUB.read_text()) == bare(stub.generate()), "run `python csrc/stub.py` after a build"
