"""No dead link: files and headings inside the repository; addresses elsewhere by their form, as nothing is fetched."""

import json
import re
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT, name, prose

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")


def headings(page):
    """Anchors of a page, as GitHub and the site make them: words in lower case, joined by hyphens."""
    if page.suffix == ".html":
        return set(re.findall(r'\sid="([^"]+)"', page.read_text(encoding="utf-8")))
    found = set()
    for text in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", text)
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain.lower()).strip()))
    return found


def check(page, target):
    parts = urlsplit(target)
    if parts.scheme:
        assert parts.scheme in ("http", "https"), target
        assert re.fullmatch(r"[\w.-]+\.[a-z]+", parts.netloc), target
        return
    there = (page.parent / parts.path).resolve() if parts.path else page
    assert there.exists(), f"{target} does not exist"
    assert there.is_relative_to(ROOT), f"{target} is outside the repository"
    if parts.fragment:
        assert parts.fragment in headings(there), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page(page):
    for target in LINK.findall(prose(page)):
        check(page, target)


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=name)
def test_links_of_a_notebook(notebook):
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for target in LINK.findall("".join(cell["source"])):
                check(notebook, target)


def test_every_page_is_reached_from_another():
    linked = {(page.parent / t.split("#")[0]).resolve() for page in PAGES for t in LINK.findall(prose(page))}
    navigation = (ROOT / "mkdocs.yml").read_text()
    lost = [
        p for p in PAGES if p not in linked and p.relative_to(ROOT).as_posix().removeprefix("docs/") not in navigation
    ]
    assert not [name(p) for p in lost if not {"results", "budgets"} & set(p.parts) and p.parent != ROOT]


def test_every_example_is_linked():
    linked = {(page.parent / t.split("#")[0]).resolve() for page in PAGES for t in LINK.findall(prose(page))}
    examples = set((ROOT / "examples").rglob("[a-z]*.py"))
    assert sorted(name(path) for path in examples - linked) == []


@pytest.mark.parametrize("bad", ["nowhere.md", "loss.md#nothing", "../../outside.md", "htp://x.org", "https://nodot"])
def test_a_dead_link_is_seen(bad):
    with pytest.raises(AssertionError):
        check(ROOT / "docs" / "index.md", bad)


def test_every_example_of_the_loss_says_how_many_classes():
    files = [*PAGES, *(ROOT / "examples").rglob("*.py"), *(ROOT / "docs/notebooks").glob("*.ipynb")]
    without = re.compile(r"\bHyperSimplexLoss\((?![^)]*num_classes)")
    assert [name(path) for path in files if path.name != "CHANGELOG.md" and without.search(path.read_text())] == []
