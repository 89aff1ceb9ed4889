"""Put the drawings of docs/figures into the pages themselves, where they follow the site's switch of colors."""

import re
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "figures"
IMAGE = re.compile(r'<img alt="([^"]*)" src="[^"]*figures/([\w-]+)\.svg"\s*/?>')


def on_page_content(html: str, **_: Any) -> str:
    return IMAGE.sub(_inline, html)


def _inline(match: re.Match[str]) -> str:
    label, name = match.groups()
    drawing = (FIGURES / f"{name}.svg").read_text(encoding="utf-8")
    drawing = re.sub(r"<(title|desc)\b.*?</\1>|<style>.*?</style>", "", drawing, flags=re.DOTALL)
    return re.sub(
        r"<svg [^>]*?(viewBox=\"[^\"]*\")[^>]*>",
        rf'<svg class="figure {name}" role="img" aria-label="{label}" \1>',
        drawing,
    )
