"""Tabular sets whose files are missing, damaged or something else, and what a network cannot take."""

import gzip
import re

import numpy as np
import pytest
import torch

from hypersimplex_study import data, tabular
from hypersimplex_study.batches import prepare
from hypersimplex_study.formats import DataError
from hypersimplex_study.presets import PRESETS
from hypersimplex_study.published import TABULAR, mean
from tabular_files import libsvm, problem, write


@pytest.mark.parametrize(
    ("folder", "file", "content", "name", "message"),
    [
        ("higgs", "HIGGS", "1 29:3.5\n", "higgs", "must have features 1 to 28, got 29"),
        ("higgs", "HIGGS", "3 1:3.5\n", "higgs", "must have labels 0 and 1, or -1 and 1, got 3"),
        ("higgs", "HIGGS", "<html>\n", "higgs", r"HIGGS cannot be read as libsvm text \(.*fetch it again"),
        ("higgs", "HIGGS", "", "higgs", "must have rows, got none"),
        ("flight", "all__csv", "a,b\n1,2\n", "flight", "must have a column 'dep_delayed_15min', got "),
        ("flight", "all__csv__gz", "", "flight", "cannot be read as csv"),
        ("flight", "2008__csv", "a,b\n1,2\n", "flight", "Data Expo's files of two years are needed"),
    ],
)
def test_a_file_that_is_something_else_is_named(tmp_path, folder, file, content, name, message):
    write(tmp_path, folder, **{file: content})
    with pytest.raises(DataError, match=message):
        data.load(name, tmp_path)


def test_a_packed_file_with_damage_in_its_middle_is_named(tmp_path):
    write(tmp_path, "flight", all__csv="a,b\n" + "1,2\n" * 5000)
    plain = tmp_path / "flight/all.csv"
    raw = bytearray(gzip.compress(plain.read_bytes()))
    raw[len(raw) // 2 : len(raw) // 2 + 8] = b"\xff" * 8
    plain.with_suffix(".csv.gz").write_bytes(raw)
    plain.unlink()
    with pytest.raises(DataError, match=r"all.csv.gz cannot be read as csv \(.*fetch it again"):
        data.load("flight", tmp_path)


@pytest.mark.parametrize("name", tabular.SOURCES)
def test_missing_files_say_where_to_get_them(tmp_path, name):
    source = tabular.SOURCES[name]
    message = (
        re.escape(f"{name} is not in {tmp_path} (looked for ") + ".*" + re.escape(f"get it from {source.get}, or name")
    )
    with pytest.raises(DataError, match=message):
        data.load(name, tmp_path)
    assert not tabular.present(source, tmp_path)


def test_the_presets_know_all_sets_and_keep_stand_ins_apart():
    assert set(PRESETS["paper-tabular"].dataset) == set(TABULAR)
    assert all(tabular.SOURCES[name].stand_in_for is None for name in TABULAR)
    for name in PRESETS["laptop-tabular"].dataset:
        # a published figure stands beside the set it was published for, never beside a stand-in
        assert mean(name, "squared-error", 0) is None
    assert (mean("higgs", "squared-error", 0), mean("higgs", "hypersimplex-paper", 0)) == (0.823, 0.846)
    assert tabular.note("higgs-sample").startswith("A stand-in for higgs, not that set: 23,075 of the 11,000,000")
    assert tabular.note("digits") is None


def test_a_network_refuses_what_it_cannot_take(tmp_path):
    x, y = problem(40, 28)
    write(tmp_path, "kdd10", kddb=libsvm(x, y), kddb__t=libsvm(x, y))
    with pytest.raises(ValueError, match="network must be lightgbm or lightgbm-paper for kdd10, whose rows are sparse"):
        prepare(data.load("kdd10", tmp_path), None, 0.1, False, torch.device("cpu"))
    x[3, 4] = np.nan
    gaps = data.Data("gaps", x, y, x, y, ("no", "yes"))
    with pytest.raises(ValueError, match="for gaps, whose rows have gaps"):
        prepare(gaps, None, 0.1, False, torch.device("cpu"))
