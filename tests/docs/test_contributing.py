"""CONTRIBUTING fits on three screens; the long map of the sources has a page of its own."""

import re

from tests.docs.pages import ROOT
from tests.docs.style import words

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_it_fits_on_three_screens():
    assert len(TEXT.splitlines()) <= 100
    assert len(words(TEXT)) <= 900


def test_it_says_how_to_run_one_test_and_to_add_a_loss_or_a_backend():
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert {"Run one test", "Add a loss on top of the operator", "Add a backend for a device"} <= set(headings)


def test_the_functions_of_a_backend_are_those_of_the_protocol():
    source = (ROOT / "src/hypersimplex/torch/backends/__init__.py").read_text(encoding="utf-8")
    protocol = source.split("class Backend(Protocol)")[1].split("\n\n\n")[0]
    functions = re.findall(r"    def (\w+)\(", protocol)
    section = TEXT.split("## Add a backend")[1].split("\n## ")[0]
    named = re.search(r"the protocol: (.*?), and the three\s+functions for many ranks", section, re.DOTALL)[1]
    assert re.findall(r"`(\w+)`", named) == functions[:-3]
