"""Who may import whom: imports point inward, without cycles, and nobody takes another module's private names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import source_map

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
    for source in (ROOT / "src", ROOT / "study" / "src")
    for path in sorted(source.glob("hypersimplex*/**/*.py"))
}
# A package and what it may import besides itself: the frameworks' front ends know the middle, not each other.
INNER = {"_batch", "_boundary", "_columns"}
SHARED = {"_checks", "_kernel", "_search"}
OPERATOR = {"_assignment", "_box_formula", "_curves", "_formulas", "_numpy_assignment", "_solve"}
ALLOWED = {
    "torch": SHARED | OPERATOR,
    "jax": SHARED | OPERATOR | {"_numpy"},
    "boosting": SHARED | {"_numpy"},
}


def resolve(name: str) -> str | None:
    """The module of ours that an imported name is, or lies in."""
    while name.startswith("hypersimplex"):
        if name in MODULES or name == "hypersimplex._kernel":
            return name
        name = name.rpartition(".")[0]
    return None


def imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Every module of ours that a file imports, in functions too, and the name taken from it, if one is."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if module := resolve(alias.name):
                    yield module, None
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                module = resolve(whole)
                if module is not None:
                    yield module, None if module == whole else alias.name


GRAPH = {name: {module for module, _ in imports(path) if module != name} for name, path in MODULES.items()}


def test_the_graph_is_not_empty():
    assert "hypersimplex.torch.backends.kernel" in GRAPH["hypersimplex.torch.backends"]
    assert "hypersimplex._kernel" in GRAPH["hypersimplex.torch.backends.kernel"]


def test_there_is_no_cycle():
    state: dict[str, int] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, " -> ".join((*path[path.index(name) :], name))
        state[name] = 1
        for other in sorted(GRAPH.get(name, ())):
            visit(other, (*path, name))
        state[name] = 2

    for name in GRAPH:
        visit(name, ())


@pytest.mark.parametrize("name", MODULES)
def test_nobody_imports_private_names(name):
    private = [f"{module}.{taken}" for module, taken in imports(MODULES[name]) if taken and taken.startswith("_")]
    assert not [entry for entry in private if not entry.endswith(".__version__")]


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_inward(name):
    _, _, rest = name.partition(".")
    front = rest.partition(".")[0]
    others = {module.removeprefix("hypersimplex.") for module in GRAPH[name]}
    if front in ALLOWED:
        outside = {other for other in others if other != front and not other.startswith(f"{front}.")}
        assert outside <= ALLOWED[front]
    if rest.startswith("torch.backends"):
        inner = {other.removeprefix("torch.") for other in others if other.startswith("torch.")}
        assert {other for other in inner if not other.startswith("backends")} <= INNER


def test_the_study_takes_the_public_modules_of_the_library():
    """The study is a distribution of its own: what it needs of the library anybody could use."""
    public = {"hypersimplex", *(f"hypersimplex.{name}" for name in ("torch", "boosting", "sklearn"))}
    taken = {m for name, found in GRAPH.items() if is_study(name) for m in found if not is_study(m)}
    assert {"hypersimplex.torch", "hypersimplex.boosting"} <= taken <= public
    assert not [name for name, found in GRAPH.items() if not is_study(name) and any(map(is_study, found))]


def is_study(module: str) -> bool:
    return module.partition(".")[0] == "hypersimplex_study"


def test_backends_do_not_import_the_place_that_picks():
    for name, found in GRAPH.items():
        if name.startswith("hypersimplex.torch.backends."):
            assert "hypersimplex.torch.backends" not in found, name


def test_the_map_of_the_sources_is_current():
    text = source_map.PAGE.read_text()
    assert "torch/backends/kernel.py" in text
    assert "hypersimplex_study" in text
    assert source_map.page(text) == text, "run: python -m tools.source_map"
