"""The lists of seeded faults: long enough, and a fault that no longer fits its source is called stale."""

import os
from collections import Counter
from dataclasses import replace

import pytest

from tools import module
from tools.mutants.mutant import AREAS, MUTANTS, Mutant, StaleError, read
from tools.mutants.page import BEGIN, END, summary, survivors, write_page
from tools.scratch import ROOT, arguments


def test_there_are_faults_of_every_part():
    for blind in (False, True):
        assert Counter(mutant.area for mutant in MUTANTS if mutant.blind == blind).keys() == AREAS.keys()
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 250
    assert all(mutant.old != mutant.new and mutant.tests for mutant in MUTANTS)


def test_a_strangers_faults_say_what_a_user_would_see():
    strangers = [mutant for mutant in MUTANTS if mutant.blind]
    assert len(strangers) >= 75
    assert [str(mutant) for mutant in strangers if not mutant.effect] == []
    assert [str(mutant) for mutant in MUTANTS if mutant.missed and not mutant.blind] == []


def test_a_list_is_read(tmp_path):
    lines = ["# a comment", "@study src/study", "@all @study/tests -k fast", "", "@study/a.py @all", "- x", "+ y"]
    lines += ["? It is slow.", "~", "- x", "+ z", "! The same.", "b.py tests/b.py .venv-all"]
    (tmp_path / "list.txt").write_text("\n".join([*lines, "- u", "+ v"]))
    tests = "src/study/tests -k fast"
    assert read(tmp_path / "list.txt", "torch", blind=True) == [
        Mutant("torch", "src/study/a.py", tests, "x", "y", effect="It is slow.", blind=True, missed=True),
        Mutant("torch", "src/study/a.py", tests, "x", "z", survives="The same.", blind=True),
        Mutant("torch", "b.py", "tests/b.py", "u", "v", blind=True, everything=True),
    ]


def test_the_tests_of_a_fault_are_files():
    for mutant in MUTANTS:
        words = iter(arguments(mutant.tests)[8:])
        for word in words:
            if word.startswith("-"):
                next(words)  # its value
            else:
                assert (ROOT / word).exists(), f"{word}, of {mutant.tests}"


def test_every_fault_fits_its_source():
    assert [f"{mutant}: {wrong}" for mutant in MUTANTS if (wrong := mutant.wrong(ROOT))] == []


@pytest.mark.parametrize("text", ["", "a < b and a < b", "a  < b"])
def test_a_fault_that_does_not_fit_once_is_stale(tmp_path, text):
    fault = Mutant("kernel", "source.cpp", "tests", "a < b", "a <= b")
    assert fault.applied("if (a < b)") == "if (a <= b)"
    with pytest.raises(StaleError, match="must be there once"):
        fault.applied(text)
    (tmp_path / "source.cpp").write_text(text)
    assert "must be there once" in fault.wrong(tmp_path)
    assert "No such file" in fault.wrong(tmp_path / "elsewhere")


def test_the_table_counts_what_was_caught_and_names_what_survived():
    faults = [Mutant("torch", "a.py", "tests", "x", new, survives="It is the same.") for new in ("y", "z", "w")]
    faults += [Mutant("torch", "a.py", "tests", "x", new, blind=True, missed=new == "u") for new in ("u", "v")]
    outcomes = ["caught", "survived", "not run", "caught", "caught"]
    results = {fault.name: {"outcome": found} for fault, found in zip(faults, outcomes, strict=True)}
    assert "| PyTorch | 3 | 1 | 2 | 1 | 2 | 1 | abc |" in summary(faults, results, "abc")
    assert "| all | 3 | 1 | 2 | 1 | 2 | 1 | |" in summary(faults, results, "abc")
    assert "JAX" not in summary(faults, results)
    assert survivors(faults, results) == "- `a.py`: `x` becomes `z`. It is the same."
    assert survivors(faults[:1], results) == "None survived."


def test_a_page_keeps_the_row_of_a_part_of_which_more_was_tried_before(tmp_path):
    faults = [Mutant(area, area, "tests", "x", new, survives="So.") for area in ("torch", "jax") for new in "yz"]
    runs = ["caught", "survived", "caught", "not run"], ["caught", "not run", "caught", "caught"]
    outcomes = [{fault.name: {"outcome": found} for fault, found in zip(faults, run, strict=True)} for run in runs]
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{BEGIN}\n{END}\nAfter.\n")
    write_page(page, faults, outcomes[0], "abc")
    first = page.read_text()
    assert "| PyTorch | 2 | 1 | 0 | 0 | 0 | 0 | abc |" in first
    assert "| JAX | 2 | 1 | 0 | 0 | 0 | 1 | abc |" in first
    write_page(page, faults, outcomes[1], "def")
    second = page.read_text()
    assert "| PyTorch | 2 | 1 | 0 | 0 | 0 | 0 | abc |" in second
    assert "| JAX | 2 | 2 | 0 | 0 | 0 | 0 | def |" in second
    assert "| all | 4 | 3 | 0 | 0 | 0 | 0 | |" in second
    for text in (first, second):
        assert text.startswith("Before.")
        assert text.endswith("After.\n")
        assert text.count("becomes") == text.count("- `torch`: `x` becomes `z`. So.") == 1
    faults[1] = replace(faults[1], survives="")
    write_page(page, faults, {faults[1].name: {"outcome": "caught"}}, "ghi")
    assert "- `torch`: `x` becomes `z`. A test was written since." in page.read_text()


def test_an_object_is_compiled_anew_if_a_file_it_was_made_of_is_younger(tmp_path):
    names = "a.cpp", "b.hpp", "c d.hpp"
    target = tmp_path / "a.o"
    assert not module._is_up_to_date(target, tmp_path)
    target.with_suffix(".d").write_text("/some/where/a.o: a.cpp b.hpp \\\n c\\ d.hpp\n")
    for age, path in enumerate([target, *(tmp_path / name for name in names)]):
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    assert module._is_up_to_date(target, tmp_path)
    for name in names:
        os.utime(tmp_path / name, (2000, 2000))
        assert not module._is_up_to_date(target, tmp_path), name
        os.utime(tmp_path / name, (900, 900))
    (tmp_path / "b.hpp").unlink()
    assert not module._is_up_to_date(target, tmp_path)
