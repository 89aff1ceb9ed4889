"""The lists of seeded faults: long enough, and a fault that no longer fits its source is called stale."""

from collections import Counter

import pytest

from tools.mutants.mutant import AREAS, MUTANTS, Mutant, StaleError
from tools.mutants.page import summary, survivors
from tools.scratch import ROOT, arguments


def test_there_are_faults_of_every_part():
    assert len(MUTANTS) >= 60
    assert Counter(mutant.area for mutant in MUTANTS).keys() == AREAS.keys()
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.old != mutant.new and mutant.tests for mutant in MUTANTS)


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
    faults = [Mutant("torch", "a.py", "tests", "x", new, "It is the same.") for new in ("y", "z", "w")]
    results = {faults[0].name: {"outcome": "caught"}, faults[1].name: {"outcome": "survived"}}
    assert "| PyTorch | 3 | 1 | 1 | 1 |" in summary(faults, results)
    assert "- `a.py`: `x` becomes `z`. It is the same." in survivors(faults, results)
