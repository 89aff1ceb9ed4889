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
# A title, the folder with its pages, and where in the navigation it stands.
FOLDERS = (
    ("Budgets", "budgets", "How-to guides"),
    ("Results", "results", "Explanation"),
)


def pages() -> dict[str, str]:
    """Files of the repository that get a page, and its address in the site."""
    scripts = [p.relative_to(ROOT) for folder in ("examples", "benchmarks") for p in (ROOT / folder).rglob("[a-z]*.py")]
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
    """Folders in the navigation: whatever pages are there."""
    for title, folder, section in FOLDERS:
        found = sorted((ROOT / "docs" / folder).glob("*.md"), key=lambda page: (page.name != "index.md", page.name))
        pages = [f"{folder}/{page.name}" for page in found]
        inside = next(part[section] for part in config.nav if section in part)
        if pages and pages[0] not in str(inside):
            inside.append({title: pages})
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
