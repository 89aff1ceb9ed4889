"""Show the notebooks as pages: text as it is, code as code, and what running it gave."""

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        old = files.get_file_from_path(f"notebooks/{path.name}")
        if old is not None:
            files.remove(old)
        files.append(
            File.generated(config, f"notebooks/{path.stem}.md", content=markdown(json.loads(path.read_text())))
        )
    return files


def on_config(config: Any) -> Any:
    names = [p.stem for p in sorted(NOTEBOOKS.glob("*.ipynb"))]
    if names and not any("Notebooks" in part for part in config.nav if isinstance(part, dict)):
        pages = ["notebooks/index.md", *(f"notebooks/{name}.md" for name in names)]
        config.nav.insert(len(config.nav) - 1, {"Notebooks": pages})
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
