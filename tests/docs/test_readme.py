"""The first screen of the README, in its order, and what a reader must find early."""

import re

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.test_python_blocks import run

PAGE = ROOT / "README.md"
LINES = PAGE.read_text(encoding="utf-8").splitlines()


def first(pattern):
    return next(number for number, line in enumerate(LINES, 1) if re.search(pattern, line))


def test_the_first_screen():
    order = [
        first(p)
        for p in (r"^\*\*A top-k", r"^!\[", r"soft_topk\(", r"^pip install '\.\[torch\]'", r"^make demo", r"^make test")
    ]
    assert order == sorted(order)
    assert order[-1] < 45
    assert not any(re.search(r"[∈≤Σⁿ]|argmin|\\\[", line) for line in LINES[: order[-1]]), "no set notation"


def test_two_commands():
    (commands,) = [b.code for b in blocks(PAGE, "bash") if "make " in b.code]
    assert re.findall(r"^make (\w+)", commands, re.MULTILINE) == ["demo", "test"]


def test_five_lines_of_code():
    code = [line for line in blocks(PAGE, "python")[0].code.splitlines() if line.strip()]
    assert len(code) == 5


@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_a_block_runs_by_itself(number):
    run(blocks(PAGE, "python")[number], {})


def test_when_to_use_it_and_when_not():
    good, bad = first(r"^\| use it when"), first(r"^\| don't use it when")
    assert good < bad < 100
    for page in ("peers", "laptop", "tabular"):
        assert any(f"docs/results/{page}.md" in line for line in LINES[:100]), page


def test_the_front_page_of_the_site_says_the_same():
    def use(page):
        section = page.read_text(encoding="utf-8").split("## When to use it")[1].split("\n## ")[0]
        return re.sub(r"\]\([^)]*\)", "]", section)

    assert use(ROOT / "docs/index.md") == use(PAGE)


def test_the_cpu_build_of_torch_comes_first():
    assert first(r"pip install torch --index-url https://download.pytorch.org/whl/cpu") < first(
        r"^pip install '\.\[torch\]'"
    )


def test_each_extra_has_its_size():
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = metadata.split("[project.optional-dependencies]")[1].split("\n[project")[0]
    for extra in re.findall(r"^(\w+) = \[", section, re.MULTILINE):
        assert re.search(rf"^\| `{extra}` \|.*\b[\d.]+ [GM]B", "\n".join(LINES), re.MULTILINE), extra


def test_it_stays_short():
    assert len(LINES) <= 160
    assert sum(line.startswith("| (") for line in LINES) <= 5, "one small table of speed"
