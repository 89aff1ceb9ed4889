"""The study as a distribution of its own: what its wheel holds, and where that says the library is."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

STUDY = Path(__file__).parents[1]
REQUIRED = "Requires-Dist: hypersimplex[torch]>=0.2\n"


@pytest.fixture
def folder(tmp_path):
    """The study alone, in a folder as that of a checkout."""
    copied = tmp_path / "a checkout" / "study"
    shutil.copytree(STUDY, copied, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    return copied


@pytest.fixture
def checkout(folder):
    source = folder.parent / "src" / "hypersimplex"
    source.mkdir(parents=True)
    (source / "_version.py").touch()
    return folder


def build(folder, kind):
    """What hatchling builds, as pip calls it."""
    code = f"import hatchling.build as b; print(b.build_{kind}('..'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder.parent / done.stdout.splitlines()[-1]


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def test_in_a_checkout_the_library_is_the_one_beside(checkout):
    text = metadata(build(checkout, "wheel"))
    where = checkout.parent.as_uri()
    assert "%20" in where
    assert f"Requires-Dist: hypersimplex[torch] @ {where}\n" in text
    assert REQUIRED in text


def test_an_editable_install_leaves_the_library_to_whoever_makes_it(checkout):
    text = metadata(build(checkout, "editable"))
    assert "@ file:" not in text
    assert REQUIRED in text


def test_what_is_released_names_no_folder(checkout, tmp_path):
    """A wheel for others is built out of an sdist, where no library lies beside the study."""
    with tarfile.open(build(checkout, "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert "@ file:" not in (unpacked / "PKG-INFO").read_text()
    text = metadata(build(unpacked, "wheel"))
    assert "@ file:" not in text
    assert REQUIRED in text
    assert "Provides-Extra: ray\n" in text


def test_a_wheel_holds_all_that_the_study_needs(folder):
    with zipfile.ZipFile(build(folder, "wheel")) as archive:
        names = set(archive.namelist())
    sources = {p.relative_to(folder / "src").as_posix() for p in (folder / "src").rglob("*") if p.is_file()}
    assert sources <= names
    assert "hypersimplex_study/templates/report.html" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not any("tests" in name for name in names)
