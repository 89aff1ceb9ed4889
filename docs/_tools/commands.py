"""The options of the `hypersimplex` command, as its own help has them, with their types and defaults."""

import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from typer.main import get_command

from hypersimplex_study.cli import app
from hypersimplex_study.sweep import Study

HEAD = ["| option | type | default | meaning |", "| --- | --- | --- | --- |"]
KINDS = {str: "text", int: "whole number", float: "number", Path: "path", bool: "flag"}
SAID = re.compile(r"[;,]? default:? ([^;]*?)(?=;|\.$)")
# What an option of `study run` stands for if neither it nor a preset is given.
STUDY = {field.name: field.default for field in fields(Study)}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return (
        markdown + "\n".join(_describe(get_command(app), "hypersimplex"))
        if page.file.src_uri == "api/cli.md"
        else markdown
    )


def _describe(command: Any, name: str) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    yield f"\n{'##' if inner else '###'} {name}\n\n{command.help or ''}\n"
    known = inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
    rows = [_row(p, known[p.name].annotation, name) for p in command.params if p.name in known]
    if rows:
        yield "\n".join([*HEAD, *rows, ""])
    for word in inner or ():
        yield from _describe(inner[word], f"{name} {word}")


def _row(parameter: Any, annotation: Any, command: str) -> str:
    argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if argument else [*parameter.opts, *parameter.secondary_opts]
    default = parameter.default
    if default is None and command == "hypersimplex study run":
        default = STUDY.get(parameter.name)
    meaning, said = parameter.help or "", ""
    if match := SAID.search(meaning):  # it has a column of its own here
        said, meaning = match[1], meaning[: match.start()].rstrip() + "." + meaning[match.end() :].removeprefix(".")
    shown = "required" if parameter.required else _shown(default) or said
    cells = [", ".join(f"`{name}`" for name in names), _kind(annotation), shown, meaning]
    return "| " + " | ".join(re.sub(r"([|\[\]])", r"\\\1", cell) for cell in cells) + " |"


def _kind(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _kind(next(a for a in inner if a is not type(None)))
    if origin is list:
        return f"{_kind(inner[0])}; repeatable"
    if hasattr(annotation, "__metadata__"):
        return _kind(inner[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{choice.value}`" for choice in annotation)
    return KINDS[annotation]


def _shown(default: Any) -> str:
    if default is None or default is False or default == ():
        return ""
    values = default if isinstance(default, tuple) else (default,)
    return ", ".join(f"`{'on' if value is True else getattr(value, 'value', value)}`" for value in values)
