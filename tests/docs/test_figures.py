"""The figures that are committed are those the script draws."""

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

FIGURES = sorted((ROOT / "docs/figures").glob("*.svg"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    subprocess.run([sys.executable, ROOT / "docs/_tools/figures.py", folder], check=True, timeout=300)
    return folder


def test_each_figure_is_drawn_and_no_other(drawn):
    assert [path.name for path in FIGURES] == sorted(path.name for path in drawn.iterdir())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_figure_is_up_to_date(drawn, figure):
    # By whole: coordinates are rounded to hundredths of a pixel, far above the last digits of a platform.
    assert (drawn / figure.name).read_text() == figure.read_text()
