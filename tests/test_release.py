"""What a release consists of: one version everywhere, and an sdist whose wheel passes the tests."""

import re
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import hypersimplex as hs

ROOT = Path(__file__).parents[1]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_everywhere():
    version = re.escape(hs.__version__)
    newest = re.search(r"^## (\S+)(?: - (\d{4}-\d\d-\d\d))?$", text("CHANGELOG.md"), re.MULTILINE)
    assert newest[1] in (hs.__version__, "Unreleased")
    assert re.search(rf"^version: {version}$", text("CITATION.cff"), re.MULTILINE)
    assert re.search(rf'^  version: "{version}"$', text("conda/recipe.yaml"), re.MULTILINE)
    study = text("study/src/hypersimplex_study/__init__.py")
    assert re.search(rf'^__version__ = "{version}"$', study, re.MULTILINE)
    if newest[1] == hs.__version__:
        assert f"date-released: {newest[2]}" in text("CITATION.cff")


def test_conda_asks_for_what_the_package_asks_for():
    metadata, recipe = text("pyproject.toml"), text("conda/recipe.yaml")
    listed = re.findall(r"^(?:requires|dependencies) = \[(.*)\]$", metadata, re.MULTILINE)
    wanted = re.findall(r'"([\w-]+)(>=[\d.]+)"', " ".join(listed))
    assert len(wanted) == 3
    for name, bound in wanted:
        assert f"- {name} {bound}\n" in recipe


def environment(folder, *requirements):
    """A new environment with nothing in it but pip and what is asked for."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if requirements:
        run(python, "-m", "pip", "install", "--quiet", *requirements)
    return python


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=3000, **options)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.slow
def test_the_wheel_of_the_sdist_passes_the_tests(tmp_path):
    """Built in an empty environment; tested away from the checkout, with the frameworks of this environment."""
    built = tmp_path / "dist"
    # Makes the sdist, then the wheel out of the unpacked sdist.
    run(environment(tmp_path / "build", "build"), "-m", "build", "--outdir", built, ROOT)
    (wheel,) = built.glob("*.whl")
    python = environment(tmp_path / "test")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    # A line of a .pth file adds a folder, and does not run the .pth files in it: no editable install comes along.
    packages = [path for path in (*site.getsitepackages(), *sys.path) if path.endswith("-packages")]
    (own,) = (tmp_path / "test").rglob("site-packages")
    (own / "frameworks.pth").write_text("\n".join(dict.fromkeys(packages)))
    away = tmp_path / "away"
    away.mkdir()
    for name in ("tests", "pyproject.toml"):
        (away / name).symlink_to(ROOT / name)
    place = run(python, "-c", "import hypersimplex._kernel as k; print(k.__file__)", cwd=away)
    assert Path(place.strip()).is_relative_to(tmp_path)
    # The rest of the suites runs over every wheel of a release in .github/workflows.
    suites = ("tests/operator/test_edges.py", "tests/operator/test_properties.py", "tests/torch/test_loss_values.py")
    out = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "-m", "not slow", *suites, cwd=away)
    assert " passed" in out
