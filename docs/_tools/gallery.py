"""Show the notebooks as pages: text as it is, code as code, and what running it gave."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = markdown(json.loads(path.read_text(encoding="utf-8")))
        content = f"{text}\n[This page as a notebook]({path.name})\n"
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """In the repository a link opens the notebook, in the site its page."""
    made_here = page.file.generated_by is not None
    return markdown if made_here else re.sub(r"(\]\([\w./-]+)\.ipynb\)", r"\1.md)", markdown)


def on_config(config: Any) -> Any:
    pages = ["notebooks/index.md", *(f"notebooks/{path.stem}.md" for path in sorted(NOTEBOOKS.glob("*.ipynb")))]
    tutorials = next(part["Tutorials"] for part in config.nav if "Tutorials" in part)
    if pages[0] not in str(tutorials):
        tutorials.append({"Notebooks": pages})
    return config


def markdown(notebook: dict[str, Any]) -> str:
    return "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(shown for output in cell["outputs"] if (shown := _output(output)))]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "image/svg+xml" in data:
        drawing = base64.b64encode("".join(data["image/svg+xml"]).encode()).decode()
        label = "".join(data.get("text/plain", ["figure"]))
        return f'<img alt="{label}" class="output" src="data:image/svg+xml;base64,{drawing}">'
    return f"```text\n{''.join(data['text/plain'])}\n```" if "text/plain" in data else ""
