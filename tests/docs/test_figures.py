"""The figures that are committed are those the script draws."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import dump, needs_browser
from tests.docs.pages import PAGES, ROOT

FIGURES = sorted((ROOT / "docs/figures").glob("*.svg"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    subprocess.run([sys.executable, ROOT / "docs/_tools/figures.py", folder], check=True, timeout=300)
    return folder


def test_each_figure_is_drawn_and_no_other(drawn):
    assert [path.name for path in FIGURES] == sorted(path.name for path in drawn.iterdir())


def test_each_figure_is_shown():
    shown = {Path(target).name for page in PAGES for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())}
    assert [path.name for path in FIGURES if path.name not in shown] == []


MOVING = [path for path in FIGURES if "@keyframes" in path.read_text()]


def test_three_move_and_stand_still_where_asked():
    assert [path.stem for path in MOVING] == ["following-threshold", "growing-k", "shrinking-tau"]
    for path in MOVING:
        rules = re.search(r'<style class="motion">(.*?)</style>', path.read_text(), re.DOTALL)[1]
        assert rules.startswith("@media (prefers-reduced-motion: no-preference) {")
        assert rules.endswith("}")
        assert rules.count("{") == rules.count("}")
        assert path.stat().st_size < 60_000


COUNT = """<!doctype html><body>{}<script>
addEventListener("load", () => {{ const all = document.getAnimations();
  document.title = all.length + " " + new Set(all.map(a => a.startTime)).size; }});
</script>"""


@needs_browser
@pytest.mark.parametrize("still", [False, True])
def test_the_browser_moves_all_parts_together_or_none(tmp_path, still):
    (tmp_path / "page.html").write_text(COUNT.format(MOVING[-1].read_text()), encoding="utf-8")
    shown = dump((tmp_path / "page.html").as_uri(), tmp_path, *["--force-prefers-reduced-motion"] * still)
    parts, starts = map(int, re.search(r"<title>(\d+) (\d+)</title>", shown).groups())
    assert (parts, starts) == ((0, 0) if still else (8, 1))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_figure_is_up_to_date(drawn, figure):
    # By whole: coordinates are rounded to hundredths of a pixel, far above the last digits of a platform.
    assert (drawn / figure.name).read_text() == figure.read_text()
