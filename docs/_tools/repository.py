"""Give the site pages for what the documentation links to outside docs/: the README, examples, benchmarks, results."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
TOP = {
    "README.md": "source/readme.md",
    "CHANGELOG.md": "source/changelog.md",
    "CONTRIBUTING.md": "source/contributing.md",
}


def pages() -> dict[str, str]:
    """Files of the repository that get a page, and its address in the site."""
    folders = ("examples", "examples/recipes", "benchmarks")
    scripts = [p.relative_to(ROOT) for folder in folders for p in (ROOT / folder).glob("[a-z]*.py")]
    return TOP | {p.as_posix(): f"source/{p.with_suffix('.md').as_posix()}" for p in scripts}


def relink(text: str, page: str, source: str, targets: dict[str, str]) -> str:
    """Point links of `source`, shown as `page`, at the site's pages."""

    def change(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match.group(1)))
        there = targets.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if there is None:
            return match.group(0)
        return f"]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{match.group(2) or ''})"

    return LINK.sub(change, text)


def on_config(config: Any) -> Any:
    """The results in the navigation: whatever pages are there."""
    found = sorted(p for p in (ROOT / "docs/results").glob("*.md") if p.name != "index.md")
    results = ["results/index.md", *(f"results/{p.name}" for p in found)]
    section = next(part for part in config.nav if isinstance(part, dict) and "The paper" in part)
    if results[0] not in str(section):
        section["The paper"].append({"Results": results})
    return config


def on_files(files: Files, config: Any) -> Files:
    targets = pages()
    for name, page in targets.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            text = f"# {name}\n\n```python\n{text}```\n"
        files.append(File.generated(config, page, content=relink(text, page, name, targets)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    address = page.file.src_uri
    return markdown if address.startswith("source/") else relink(markdown, address, f"docs/{address}", pages())
