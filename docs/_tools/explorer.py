"""Show docs/explorer.html, a page of its own, inside a page of the site, so that the navigation stays around it."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXPLORER = Path(__file__).parents[1] / "explorer.html"
FRAME = "explorer-frame.html"
PAGE = f"""---
hide: [toc]
---

# Explorer

Move the points, k and tau, and see the soft top-k, its threshold and its gradient.

<iframe id="explorer-frame" src="{FRAME}" title="Explorer" style="width: 100%; height: 3200px; border: 0"></iframe>
<script>
addEventListener("message", event => {{
  if (event.data.explorer) document.getElementById("explorer-frame").style.height = event.data.explorer + "px";
}});
</script>
"""


def on_files(files: Files, config: Any) -> Files:
    files.remove(files.get_file_from_path("explorer.html"))
    files.append(File.generated(config, FRAME, content=EXPLORER.read_text(encoding="utf-8")))
    files.append(File.generated(config, "explorer.md", content=PAGE))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """In the repository a link opens the explorer itself, in the site the page around it."""
    return re.sub(r"(\]\([./]*)explorer\.html\)", r"\1explorer.md)", markdown)
