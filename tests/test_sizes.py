"""Small files and short functions: no file over 300 lines, no function over 50 without its docstring."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = sorted(path for folder in ("src", "study/src") for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted(path for folder in ("tests", "study/tests") for path in (ROOT / folder).rglob("*.py"))
CPP = sorted(path for end in ("*.hpp", "*.cpp") for path in (ROOT / "csrc").rglob(end))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def long_functions(text: str, most: int) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1:2] if ast.get_docstring(node) else node.body[:1]
            begin = first[0].lineno if first else node.end_lineno
            if node.end_lineno - begin + 1 > most:
                found.append(node.name)
    return found


def test_a_long_function_is_found():
    text = 'def f():\n    """Text."""\n' + "    x = 1\n" * 5
    assert long_functions(text, 4) == ["f"]
    assert long_functions(text, 5) == []


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_python_files_are_small_and_so_are_their_functions(path):
    text = path.read_text()
    assert text.count("\n") <= 300
    assert long_functions(text, 50) == []


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_tests_are_small_files_too(path):
    assert path.read_text().count("\n") <= 300


@pytest.mark.parametrize("path", CPP, ids=name)
def test_cpp_files_are_small_and_their_lines_short(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 300
    assert max(map(len, lines)) <= 110
