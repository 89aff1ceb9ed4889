"""One spelling: American, in the pages, and in what the source says in its docstrings, messages and comments."""

import io
import json
import re
import tokenize

import pytest

from tests.docs.pages import PAGES, ROOT, name

STEMS = (
    "analyse behaviour cancell catalogue centre colour defence emphasis[ei] favour flavour fulfil(?!l) generalis grey"
    " harbour honour initialis judgement labell licence maximis metre(?!s?\\b) minimis modell neighbour normalis"
    " optimis(?!tic|m\\b) organis parametris penalis programme(?!d|r) quantis randomis realis(?!tic|m) recognis"
    " regularis serialis specialis standardis summaris synchronis tokenis travell utilis vectoris visualis"
)
BRITISH = re.compile(rf"\b\w*(?:{'|'.join(STEMS.split())})\w*|\bwhilst\b", re.IGNORECASE)
KNOWN = {"aria-labelledby", "labelledby"}  # names that are not ours to spell
OTHERS = [ROOT / "docs/explorer.html", ROOT / "mkdocs.yml", *sorted((ROOT / "docs/notebooks").glob("*.ipynb"))]
SOURCES = sorted(path for folder in ("src", "study/src") for path in (ROOT / folder).rglob("*.py"))


def words(text):
    return [word for word in BRITISH.findall(text) if word not in KNOWN]


def said(path):
    """The strings and comments of a file of Python."""
    kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None))
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return "\n".join(token.string for token in tokens if token.type in kinds)


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_a_page(page):
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    assert words(text) == []


def test_the_source():
    assert {name(path): found for path in SOURCES if (found := words(said(path)))} == {}


@pytest.mark.parametrize("word", ["optimiser", "Normalised", "colour", "behaviour", "unlabelled", "neighbouring"])
def test_a_british_word_is_seen(word):
    assert words(f"The {word} of it.") == [word]


@pytest.mark.parametrize("text", ["optimistic", "realistic", "fulfill", "programmer", "parameter", "aria-labelledby"])
def test_other_words_are_left_alone(text):
    assert words(text) == []
