"""Sentences of a page, and the numbers and words in them."""

import re

from tests.docs.pages import prose

LINK = re.compile(r"!?\[((?:[^\]\[]|\[[^\]]*\])*)\]\([^)]*\)")
SHAPE = re.compile(r"\(\s*[\d,^ ]+,\s*[\d,^ ]+\)")  # one thing, whatever its sizes
NUMBER = re.compile(r"(?<![\w.^-])[-+±]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w^])")


def words(text):
    return [word for word in text.split() if re.search(r"\w", word)]


def rows(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def sentences(page):
    """Out of paragraphs, list items and the cells of tables; headings and figures are none."""
    text = re.sub(r"`[^`\n]*`", "code", prose(page))
    text = LINK.sub(lambda m: "" if m[0].startswith("!") else m[1], text)
    parts = [cell for line in rows(text) for cell in line.strip("|").split("|")]
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#", "    "))]
    parts += re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d\.)\s)", "\n".join(lines))
    for part in parts:
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z\[*])", " ".join(part.split())):
            if len(words(sentence)) > 3:
                yield sentence


def numbers(sentence):
    return NUMBER.findall(SHAPE.sub("shape", sentence))
