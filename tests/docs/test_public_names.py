"""Every public name has a place in the API pages, and a docstring."""

import ast

import pytest

from tests.docs.pages import ROOT

SOURCE = ROOT / "src/hypersimplex"
PAGES = {"numpy": SOURCE} | {module: SOURCE / module for module in ("torch", "jax", "boosting", "sklearn")}


def public(folder):
    """The names in __all__, and for each the file that it is imported from."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    listed = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    homes = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            path = ROOT / "src" / node.module.replace(".", "/")
            homes |= {alias.asname or alias.name: path for alias in node.names}
    return {name: homes.get(name, folder) for name in ast.literal_eval(listed) if not name.startswith("__")}


NAMES = [(page, name) for page, folder in PAGES.items() for name in public(folder)]


@pytest.mark.parametrize(("page", "name"), NAMES, ids=[f"{page}.{name}" for page, name in NAMES])
def test_a_name_is_in_the_api(page, name):
    text = (ROOT / f"docs/api/{page}.md").read_text(encoding="utf-8")
    lines = [line.removeprefix("::: ") for line in text.splitlines() if line.startswith("::: hypersimplex")]
    heading = f"## {name} {{ #hypersimplex.{'' if page == 'numpy' else page + '.'}{name} }}"
    assert heading in text or any(line.rsplit(".", 1)[-1] == name for line in lines), f"{name} is not in {page}.md"


def docstring(path, name):
    """What is said of a name where it is defined; a second name for a function counts as that function."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return docstring(path, node.value.id)
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return docstring(ROOT / "src" / node.module.replace(".", "/"), name)
    return None


@pytest.mark.parametrize(("page", "name"), NAMES, ids=[f"{page}.{name}" for page, name in NAMES])
def test_a_name_has_a_docstring(page, name):
    assert docstring(public(PAGES[page])[name], name), name


def test_the_front_page_of_the_api_names_every_function():
    text = (ROOT / "docs/api/index.md").read_text(encoding="utf-8")
    assert [name for name in public(PAGES["torch"]) if f"`{name}`" not in text] == []
