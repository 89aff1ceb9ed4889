"""The map of the Python sources in docs/source-map.md, out of every first line: `python -m tools.source_map`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src/hypersimplex", "study/src/hypersimplex_study")
PAGE = ROOT / "docs" / "source-map.md"
BEGIN, END = "<!-- begin: source map -->", "<!-- end: source map -->"


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def source_map() -> str:
    return "\n\n".join(map(table, FOLDERS))


def table(folder: str) -> str:
    lines = [f"| file in `{folder}/` | what it holds |", "| --- | --- |"]
    for path in sorted((ROOT / folder).rglob("*.py"), key=lambda p: (p.parent, p)):
        if says := first_line(path):
            lines.append(f"| `{path.relative_to(ROOT / folder).as_posix()}` | {says.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def page(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{source_map()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
