"""The first screen of the README, in its order, and what a reader must find early."""

import re

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.style import numbers, rows, sentences, words
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


def test_five_lines_of_code_and_their_results():
    code = [line for line in blocks(PAGE, "python")[0].code.splitlines() if line.strip()]
    assert len([line for line in code if not line.startswith("#")]) == 5
    assert max(map(len, (line for line in code if line.startswith("#")))) <= 40, "seen on a telephone"
    assert first(r"^```python") <= 10


@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_a_block_runs_by_itself(number):
    run(blocks(PAGE, "python")[number], {})


def test_when_to_use_it_and_when_not():
    good, bad = first(r"^\| use it when"), first(r"^\| don't use it when")
    assert good < bad < 100
    for page in ("peers", "laptop", "tabular"):
        assert any(f"docs/results/{page}.md" in line for line in LINES[:100]), page


def test_the_front_page_of_the_site_repeats_no_table():
    front = rows((ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert front, "it has a table of its own"
    assert set(front) & set(rows("\n".join(LINES))) <= {"| --- | --- |"}


def test_the_cpu_build_of_torch_comes_first():
    assert first(r"pip install torch --index-url https://download.pytorch.org/whl/cpu") < first(
        r"^pip install '\.\[torch\]'"
    )


def test_each_extra_has_its_size():
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = metadata.split("[project.optional-dependencies]")[1].split("\n[project")[0]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    for extra in re.findall(r"^(\w+) = \[", section, re.MULTILINE):
        assert re.search(rf"^\| `{extra}` \|.*\b[\d.]+ [GM]B", page, re.MULTILINE), extra
    assert "(docs/install.md)" in PAGE.read_text(encoding="utf-8")


def test_it_stays_short():
    text = PAGE.read_text(encoding="utf-8")
    assert len(LINES) <= 160
    assert len(words(text)) <= 1200
    assert len(words("\n".join(rows(text)))) <= 500
    assert sum(line.startswith("| (") for line in LINES) <= 5, "one small table of speed"


def test_no_sentence_has_more_than_two_numbers():
    assert [sentence for sentence in sentences(PAGE) if len(numbers(sentence)) > 2] == []


@pytest.mark.parametrize(
    ("sentence", "count"),
    [
        ("0.27 points at 256, 0.37 at 2,048, -1.5e-3 at 10 %", 6),
        ("at (10, 128) and (4096, 64) it takes 1.2 softmaxes", 1),
        ("the paper's k = 1 and Fashion-MNIST, float32", 1),
    ],
)
def test_numbers_are_counted(sentence, count):
    assert len(numbers(sentence)) == count


def test_which_tau_is_linked_at_once():
    assert first(r"\(docs/tau-and-k\.md\)") < first(r"^pip install torch")
    assert first(r"\(docs/which-top-k\.md\)") < first(r"^pip install torch")
    front = (ROOT / "docs/index.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert "(tau-and-k.md)" in front
    assert "(which-top-k.md)" in front


def test_the_paper_can_be_cited():
    text = PAGE.read_text(encoding="utf-8")
    (record,) = blocks(PAGE, "bibtex")
    assert "https://arxiv.org/abs/2602.23336" in text
    assert "eprint = {2602.23336}" in record.code
    title = re.search(r'title: "(Diff.*)"', (ROOT / "CITATION.cff").read_text(encoding="utf-8"))[1]
    assert f"title = {{{title}}}" in record.code


def test_the_api_lists_every_function():
    text = "\n".join(rows(PAGE.read_text(encoding="utf-8")))
    listed = re.search(r"__all__ = \[(.*?)\]", (ROOT / "src/hypersimplex/torch/__init__.py").read_text(), re.DOTALL)
    assert [name for name in re.findall(r'"(\w+)"', listed[1]) if not re.search(rf"\b{name}\b", text)] == []
