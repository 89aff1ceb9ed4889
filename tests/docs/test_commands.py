"""Every command line of the documentation names things that exist: options, make targets, files, extras."""

import itertools
import re
import shlex

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name, prose

pytest.importorskip("typer")

TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ROOTS = (ROOT, ROOT / "study/src")
INLINE = re.compile(r"`((?:hypersimplex|make|python|torchrun|pip install) [^`]+)`")


def lines(page):
    """(where, command line), from blocks of bash and from code within sentences."""
    for block in blocks(page, "bash"):
        for number, line in enumerate(block.code.replace("\\\n", " ").splitlines(), block.line):
            if line.strip() and not line.lstrip().startswith("#"):
                yield f"{name(page)}:{number}", line.split(" > ")[0]  # without where its output goes
    for number, line in enumerate(prose(page).splitlines(), 1):
        for command in INLINE.findall(line):
            if not re.search(r"\.\.\.|[<>\\|]", command):  # a pattern, not a command
                yield f"{name(page)}:{number}", command


# The changelog tells of commands that were.
COMMANDS = [found for page in PAGES if page.name != "CHANGELOG.md" for found in lines(page)]


def parse(app, words):
    """Read a command line as the command would, and run nothing."""
    from typer.main import get_command

    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    context = command.context_class(command)
    options, rest, _ = command.make_parser(context).parse_args(list(words))
    assert not rest, f"unknown words {rest}"
    for parameter in command.params:
        acts = parameter.is_eager or "completion" in parameter.name  # prints, or writes, and ends
        if parameter.name in options and not acts:
            parameter.process_value(context, options[parameter.name])


def extras(requirement):
    listed = re.search(r"\[(.*)\]", requirement)
    return listed[1].split(",") if listed else []


def check(words):
    program, *rest = itertools.dropwhile(re.compile(r"[A-Z_]+=").match, words)  # variables of the environment first
    environment, _, tool = program.rpartition("/bin/")
    if environment in (".venv", ".venv-all"):
        program = tool
    if program == "hypersimplex":
        from hypersimplex_study.cli import app

        parse(app, rest)
    elif rest[:2] == ["-m", "benchmarks.peers"]:
        from benchmarks.peers.__main__ import app

        parse(app, rest[2:])
    elif program == "taskset":  # -c, a processor, and the command that runs there
        check(rest[2:])
    elif program == "make":
        assert {word for word in rest if "=" not in word} <= TARGETS
    elif program == "pip":
        for requirement in (word for word in rest if word.startswith(".")):
            metadata = (ROOT / requirement.partition("[")[0] / "pyproject.toml").read_text()
            assert all(re.search(rf"^{extra} = ", metadata, re.MULTILINE) for extra in extras(requirement)), requirement
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in rest if word.startswith("tests")), rest
    elif program in ("python", "torchrun"):
        modules = [word.replace(".", "/") for flag, word in itertools.pairwise(rest) if flag == "-m"]
        files = [word for word in rest if word.endswith(".py")]
        assert modules or files, words
        for module in modules:
            ends = (".py", "/__main__.py")
            assert any((root / f"{module}{end}").exists() for root in ROOTS for end in ends), module
        assert all((ROOT / file).exists() for file in files), files
    else:
        raise AssertionError(f"no rule for {program}")


@pytest.mark.parametrize(("where", "line"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_command(where, line):
    check(shlex.split(line, comments=True))


@pytest.mark.parametrize(
    "line",
    [
        "hypersimplex study run --epoch 3",
        "hypersimplex study run --epochs x",
        "hypersimplex study walk",
        "make tset",
        "pip install '.[touch]'",
        "pip install './study[rya]'",
        "pip install ./stduy",
        "python -m benchmarks.peers --prat budgets",
        "python examples/none.py",
        "python -m benchmarks.none",
        ".venv/bin/pytest tests/none.py",
        ".venv-other/bin/pytest tests",
    ],
)
def test_a_wrong_command_is_seen(line):
    with pytest.raises((AssertionError, Exception), match=r".+"):
        check(shlex.split(line))


def test_every_target_is_listed_by_help():
    described = set(re.findall(r"^([a-z][a-z-]*):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert described == TARGETS
