"""The options of the `hypersimplex` command, as its own help has them."""

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from hypersimplex.cli import app


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return (
        markdown + "\n".join(_describe(get_command(app), "hypersimplex"))
        if page.file.src_uri == "api/cli.md"
        else markdown
    )


def _describe(command: Any, name: str) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    yield f"\n{'##' if inner else '###'} {name}\n\n{command.help or ''}\n"
    rows = [row for parameter in command.params if (row := _row(parameter))]
    if rows:
        yield "\n".join(["| option | |", "| --- | --- |", *rows, ""])
    for word in inner or ():
        yield from _describe(inner[word], f"{name} {word}")


def _row(parameter: Any) -> str | None:
    if parameter.name in ("install_completion", "show_completion"):
        return None
    if parameter.param_type_name == "argument":
        return f"| `{parameter.name.upper()}` | {parameter.help or ''} |"
    names = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default if isinstance(parameter.default, str | int | float) else None
    shown = f" Default: `{default}`." if default is not None and not isinstance(default, bool) else ""
    text = re.sub(r"([|\[\]])", r"\\\1", parameter.help or "")
    return f"| {names} | {text}{shown} |"
