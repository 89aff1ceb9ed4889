"""What installing and importing the package promises."""

import doctest
import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hypersimplex as hs
import hypersimplex.torch as hst
from hypersimplex._checks import missing

FRAMEWORKS = ("torch", "jax", "sklearn", "scipy", "lightgbm", "xgboost", "pandas", "matplotlib")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_importing_loads_no_framework():
    done = python("import sys, hypersimplex; hypersimplex.soft_binary_argmax([0.5, 1.0], 1); print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded
    assert loaded.isdisjoint(FRAMEWORKS)


@pytest.mark.parametrize("framework", ["torch"])
def test_a_missing_framework_is_asked_for_by_its_own_name(framework):
    done = python(f"import sys; sys.modules[{framework!r}] = None; import hypersimplex.{framework}")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(("ImportError", "ModuleNotFoundError"))
    assert f"install it with: pip install '{framework}>=" in last


@pytest.mark.parametrize(("extra", "brings_torch"), [("torch", True), ("sklearn", True), ("jax", False)])
def test_a_hint_that_brings_torch_names_its_small_build(extra, brings_torch, monkeypatch):
    """Unless torch is there already: the default build for Linux comes with gigabytes of CUDA."""
    assert "whl/cpu" not in str(missing("this", "that", extra))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert ("pip install torch --index-url" in str(missing("this", "that", extra))) == brings_torch


# Not find_spec: looking for pip so switches off what setuptools needs later in this process.
@pytest.mark.skipif(not list(importlib.metadata.distributions(name="pip")), reason="pip is not installed here")
@pytest.mark.parametrize("extra", ["torch"])
def test_the_command_of_the_hint_works_in_any_folder(extra, tmp_path):
    """Its packages are all here, so that pip has nothing to do, and no index is asked."""
    command = [sys.executable, "-m", *command_of(extra), "--dry-run", "--no-index", "--no-deps"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def command_of(extra):
    """The words of the command that a hint tells to run."""
    told = str(missing("this", "that", extra)).partition("install it with: ")[2]
    return shlex.split(told.partition(" (without a GPU")[0])


def test_no_hint_names_this_library():
    """It need not be on an index, where its name could then be a stranger's."""
    for extra in importlib.metadata.metadata("hypersimplex").get_all("Provides-Extra"):
        command = command_of(extra)
        assert command[:2] == ["pip", "install"]
        assert len(command) > 2
        assert not any("hypersimplex" in word for word in command)
    assert command_of("sklearn")[2:] == [*command_of("lightgbm")[2:], *command_of("torch")[2:]]
    assert command_of("torch")[2].startswith("torch>=")


def test_a_condition_of_a_package_is_told_with_it(monkeypatch):
    told = ['tomli>=2; python_version < "3.11" and extra == "toml"', 'torch>=2.5; extra == "torch"', "numpy>=1.24"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: told)
    assert command_of("toml") == ["pip", "install", 'tomli>=2; python_version < "3.11"']


def test_without_metadata_the_hint_is_for_a_checkout(monkeypatch):
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", none)
    assert "install it with: pip install '.[torch]' in a checkout of hypersimplex" in str(missing("a", "b", "torch"))


def test_every_hint_names_an_extra_that_exists():
    extras = set(importlib.metadata.metadata("hypersimplex").get_all("Provides-Extra"))
    files = Path(hs.__file__).parent.rglob("*.py")
    hints = {extra for file in files for extra in re.findall(r'raise .*missing\(.*"(\w+)"\)', file.read_text())}
    assert {"torch", "jax", "sklearn", "lightgbm", "xgboost"} <= hints <= extras


def test_a_broken_framework_is_not_called_missing():
    """An error inside the framework must not be hidden behind advice to install it."""
    code = (
        "import sys, types; fake = types.ModuleType('torch'); fake.__getattr__ = lambda name: 1 / 0;"
        "sys.modules['torch'] = fake; import hypersimplex.torch"
    )
    done = python(code)
    assert done.returncode != 0
    assert "install it with" not in done.stderr


def test_the_version_is_the_installed_one():
    assert hs.__version__ == importlib.metadata.version("hypersimplex")


def test_types_are_shipped():
    files = importlib.resources.files(hs)
    assert (files / "py.typed").is_file()


@pytest.mark.parametrize("package", [hs, hst])
def test_the_examples_in_the_docstrings_are_true(package):
    """In the package's own modules, but for the compiled one."""
    found = pkgutil.iter_modules(package.__path__, package.__name__ + ".")
    names = {module.name for module in found if not module.ispkg} - {"hypersimplex._kernel"}
    results = [doctest.testmod(importlib.import_module(name)) for name in sorted(names)]
    assert sum(result.attempted for result in results) > 3
    assert sum(result.failed for result in results) == 0


@pytest.mark.parametrize("module", [hs, hst])
def test_every_public_name_has_an_example(module):
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value):
            assert ">>>" in (value.__doc__ or ""), name


def test_the_public_names():
    operator = {"soft_binary_argmax", "binary_argmax", "threshold"}
    loss = {"hypersimplex_loss", "HyperSimplexLoss", "backward_in_chunks"}
    assert operator <= set(hs.__all__)
    assert operator | loss | {"SoftBinaryArgmax"} <= set(hst.__all__)
