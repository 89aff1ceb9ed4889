"""The built site: complete, without anything from elsewhere, and with formulas that are text."""

import json
import re
import subprocess
import sys

import pytest

from tests.browser import dump, look_at, needs_browser
from tests.docs.pages import PAGES, ROOT

pytest.importorskip("mkdocs", reason="the site is built by make test-docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there(site):
    for page in PAGES:
        if page.is_relative_to(ROOT / "docs"):
            assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists()
    assert (site / "source/readme.html").exists()
    assert (site / "source/examples/train_loop.html").exists()


def test_nothing_comes_from_elsewhere(site):
    loaded = re.compile(
        r"""(?:<(?:script|img|iframe|source)[^>]*?\ssrc|<link[^>]*?\shref)=["']?(https?:)?//[^"'\s>]+"""
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_links_between_pages_and_anchors(site):
    anchors = {}
    for page in site.rglob("*.html"):
        anchors[page.resolve()] = set(re.findall(r"""\sid=["']?([^"'\s>]+)""", page.read_text(encoding="utf-8")))
    for page in anchors:
        if page.name == "404.html":
            continue
        for target in re.findall(r"""<a[^>]*?\shref=["']([^"']+)["']""", page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), (page, target)
            assert not anchor or there.suffix != ".html" or anchor in anchors[there], (page, target)


def test_formulas_are_mathml(site):
    page = (site / "mathematics.html").read_text(encoding="utf-8")
    assert page.count("<math") > 20
    assert "arithmatex" not in page
    assert "\\operatorname" not in re.sub(r"<annotation.*?</annotation>", "", page, flags=re.DOTALL)


def test_figures_are_part_of_the_page(site):
    page = (site / "mathematics.html").read_text(encoding="utf-8")
    assert page.count('<svg class="figure') == 4
    assert "figures/" not in page


def test_the_reference_has_every_public_name(site):
    for module in ("torch", "jax", "boosting", "sklearn"):
        listed = re.search(
            r"__all__ = \[(.*?)\]", (ROOT / f"src/hypersimplex/{module}/__init__.py").read_text(), re.DOTALL
        )
        page = (site / f"api/{module}.html").read_text(encoding="utf-8")
        for public in re.findall(r'"(\w+)"', listed[1]):
            assert re.search(rf'id="hypersimplex\.{module}\.(\w+\.)?{public}"', page), (module, public)


def found_by(index, word):
    """The pages that a search for a word finds: those with its parts, as the index cuts words up."""

    def parts(text):
        return {part.lower() for part in re.split(index["config"]["separator"], re.sub(r"<[^>]+>", " ", text))}

    wanted = parts(word)
    return {e["location"].split("#")[0] for e in index["docs"] if wanted <= parts(f"{e['title']} {e['text']}")}


WORDS = {
    "top-k": "index.html", "topk": "index.html", "MoE": "recipes/experts.html", "routing": "recipes/experts.html",
    "quantile": "tau-and-k.html", "straight-through": "faq.html", "sparsemax": "migration/entmax.html",
    "soft_topk": "start.html", "budget": "tau-and-k.html", "gumbel": "recipes/sampling.html", "bibtex": "index.html",
    "attention": "recipes/selection.html", "imbalanced": "rare-classes.html", "Windows": "install.html",
    "deterministic": "edges.html", "fp16": "edges.html", "causal mask": "recipes/selection.html",
    "softtorch": "which-top-k.html", "LapSum": "which-top-k.html", "onnx": "recipes/serve.html",
    "could not convert string": "sklearn.html", "quantile balancing": "recipes/quantile-balancing.html",
    "jaxopt": "migration/jaxopt.html", "optax": "migration/jaxopt.html", "retrieval": "recipes/retrieval.html",
    "torch.quantile": "recipes/quantiles.html", "projection_box_section": "migration/jaxopt.html",
}  # fmt: skip


@pytest.mark.parametrize(("word", "page"), WORDS.items())
def test_search_finds(site, word, page):
    text = (site / "search/search_index.js").read_text(encoding="utf-8")
    found = found_by(json.loads(text[text.index("{") : text.rindex("}") + 1]), word)
    assert page in found, found


def test_no_backslash_is_shown(site):
    for page in site.rglob("*.html"):
        shown = re.sub(r"<(pre|script|math)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert r"\|" not in shown, page


def test_the_command_has_types_and_defaults(site):
    page = (site / "api/cli.html").read_text(encoding="utf-8")
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", page, re.DOTALL)]
    rows = {row[0]: row[1:3] for row in zip(*(cells[i::4] for i in range(4)), strict=True)}
    assert rows["--batch-size"] == ("whole number; repeatable", "128")
    assert rows["--format"] == ("json, csv", "json")
    assert rows["--threads"] == ("whole number", "torch's choice")


def test_the_explorer_keeps_the_navigation(site):
    page = (site / "explorer.html").read_text(encoding="utf-8")
    assert 'class="md-tabs"' in page
    assert 'src="explorer-frame.html"' in page
    assert 'href="explorer.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_sections_of_the_navigation(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    tabs = re.findall(r'class="md-tabs__link"[^>]*>\s*([^<]*?)\s*<', page)
    assert tabs == ["Home", "Tutorials", "How-to guides", "Reference", "Explanation"]


def test_every_page_is_in_the_navigation(site):
    linked = re.findall(r'<a href="([^"#]+)" class="md-nav__link', (site / "index.html").read_text(encoding="utf-8"))
    docs = [page.relative_to(ROOT / "docs") for page in PAGES if page.is_relative_to(ROOT / "docs")]
    pages = {page.with_suffix(".html").as_posix() for page in docs if page.name != "report.md"}  # a study's own report
    assert sorted(pages - set(linked)) == []


@needs_browser
@pytest.mark.parametrize("word", ["top-k", "soft_topk", "MoE", "gumbel", "Windows"])
def test_search_works_from_a_folder(site, tmp_path, word):
    address = f"{(site / 'index.html').as_uri()}?q={word}"
    shown = dump(address, tmp_path, "--virtual-time-budget=10000")
    assert re.search(r'md-search-result__meta">\s*[1-9]\d* matching documents?', shown)


OUT_OF_SIGHT = """return [...document.querySelectorAll(".language-python code")].slice(0, 2)
  .map(code => code.scrollWidth - code.clientWidth);"""


@needs_browser
@pytest.mark.parametrize("name", ["index", "start", "tau-and-k", "source/readme", "jax", "recipes/selection"])
def test_results_are_seen_on_a_telephone(site, name):
    page = (site / f"{name}.html").read_text(encoding="utf-8")
    folder = (site / f"{name}.html").parent
    widths = look_at(page, folder, 390, script=OUT_OF_SIGHT)["found"]
    assert widths
    assert max(widths) <= 0


@needs_browser
@pytest.mark.parametrize("name", ["index", "mathematics", "paper-and-code", "which-top-k", "rare-classes"])
def test_pages_fit_a_telephone(site, name):
    page = (site / f"{name}.html").read_text(encoding="utf-8")
    assert look_at(page, site, 390)["overflow"] <= 0
