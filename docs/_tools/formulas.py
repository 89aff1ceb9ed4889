"""Turn TeX into MathML while the site is built, so that reading it needs neither a script nor a font from elsewhere."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    return FORMULA.sub(_mathml, html)


def _mathml(match: re.Match[str]) -> str:
    tag, tex = match.group(1), unescape(match.group(2)).strip()
    formula = convert(tex[2:-2], display="block" if tag == "div" else "inline")
    return f'<div class="formula" tabindex="0">{formula}</div>' if tag == "div" else formula
