"""Exports that are damaged or made up: each is refused with the name of its file, and nothing of it is taken."""

import json

import pytest

from hypersimplex_study import exchange
from hypersimplex_study.config import RunConfig
from hypersimplex_study.store import Store
from test_cli import call
from test_false import WRITERS, csv_of, three  # noqa: F401
from trainings import epoch

DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 6000


def refused(tmp_path, name, text):
    """What an import of this file says; it must make no store."""
    (tmp_path / name).write_text(text)
    said = call("study", "import", tmp_path / name, "--store", tmp_path / "new.sqlite", code=1)
    assert not (tmp_path / "new.sqlite").exists()
    assert "Traceback" not in said
    said = " ".join(said.split())
    assert name in said
    return said


@pytest.fixture
def row(store):
    """The one row of an export of the first version."""
    store.add_runs([RunConfig()])
    store.record(RunConfig().key(), epoch(0))
    (found,) = exchange.rows(store.runs())
    return {k: v for k, v in found.items() if k not in exchange.WHOLENESS}


@pytest.mark.parametrize("made", [{"data": ["x"]}, {"data": 5}, {"data": {"a": 1}}, {"samples": [3]}])
@pytest.mark.parametrize("form", WRITERS)
def test_a_provenance_that_is_none_is_refused(row, tmp_path, form, made):
    text = json.dumps([row | {"provenance": made}])
    if form == "csv":
        text = csv_of([row | {"provenance": json.dumps(made), "drop": "[]"}])
    (name,) = made
    assert f"row {1 if form == 'json' else 2}: provenance must have" in refused(tmp_path, f"e.{form}", text)
    assert f"of {name}" in refused(tmp_path, f"e.{form}", text)


def test_a_provenance_may_lack_what_it_tells(row):
    assert exchange.read(json.dumps([row | {"provenance": {}}]))
    assert exchange.read(json.dumps([row | {"provenance": {"data": None, "samples": {"train": 3}}}]))
    assert exchange.read(json.dumps([row | {"provenance": None}]))


def test_json_nested_too_deep_is_refused(row, tmp_path):
    assert "nested too deep" in refused(tmp_path, "e.json", DEEP)
    text = json.dumps([row | {"error": "HERE"}]).replace('"HERE"', DEEP)
    assert "nested too deep" in refused(tmp_path, "e.json", text)


def test_a_cell_nested_too_deep_is_refused(row, tmp_path):
    deep = DEEP[:50_000] + DEEP[-50_000:]
    text = csv_of([row | {"provenance": deep, "drop": "[]"}])
    assert "row 2: provenance cannot be '[[[" in refused(tmp_path, "e.csv", text)


@pytest.mark.parametrize("column", ["seed", "train_loss", "attempts", "epoch"])
def test_a_whole_number_of_thousands_of_digits_is_refused(row, tmp_path, column):
    text = json.dumps([row | {column: "HERE"}]).replace('"HERE"', LONG)
    assert "number has more digits than" in refused(tmp_path, "e.json", text)
    said = refused(tmp_path, "e.csv", csv_of([row | {"provenance": "{}", "drop": "[]", column: LONG}]))
    assert len(said) < 500


@pytest.mark.parametrize("column", ["seed", "attempts", "width"])
@pytest.mark.parametrize(("value", "fits"), [(2**63 - 2, True), (2**63 - 1, True), (2**63, False), (10**400, False)])
def test_a_whole_number_must_fit_the_store(row, tmp_path, column, value, fits):
    made = row | {column: value}
    if column != "attempts":
        made["run"] = RunConfig(**{column: value}).key()
    text = json.dumps([made])
    if fits:
        with Store(tmp_path / "s.sqlite") as store:
            assert exchange.import_rows(store, exchange.read(text)) == (0, 0, 1)
    else:
        assert f"row 1: {column} cannot be" in refused(tmp_path, "e.json", text)


@pytest.mark.parametrize("made", [{"train_loss": 10**400}, {"provenance": {"samples": {"train": 10**400}}}], ids=str)
def test_a_number_beyond_all_is_refused(row, tmp_path, made):
    assert f"row 1: {next(iter(made))} " in refused(tmp_path, "e.json", json.dumps([row | made]))


@pytest.mark.parametrize("column", ["error", "dataset", "label", "provenance", "drop", "run"])
def test_half_a_character_is_refused(row, tmp_path, column):
    bad = {"provenance": {"a": ["\ud800"]}, "drop": ["\ud800"]}.get(column, "\ud800")
    said = refused(tmp_path, "e.json", json.dumps([row | {column: bad}]))
    assert f"row 1: {column} cannot be" in said


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("part", [0.03, 0.3, 0.5, 0.7, 0.97])
def test_a_half_cut_export_is_refused(three, tmp_path, form, part):  # noqa: F811
    whole = WRITERS[form](three.runs())
    said = refused(tmp_path, f"cut.{form}", whole[: int(part * len(whole))])
    assert "the  rows" not in said


def test_an_export_cut_in_its_last_row_says_so(three, tmp_path):  # noqa: F811
    text = exchange.to_csv(three.runs())
    last = text.rstrip("\n").rpartition("\n")[2]
    cut = len(last) // 2
    said = refused(tmp_path, "cut.csv", text[: -cut - 1])
    assert "row 13 is cut short" in said
    alone = text.partition("\n")[0] + "\n" + last
    assert "row 2 is cut short" in refused(tmp_path, "cut.csv", alone[:-cut])


@pytest.mark.parametrize("end", [-1, -5, -16, -17])
def test_an_export_cut_in_its_hash_is_refused(three, tmp_path, end):  # noqa: F811
    text = exchange.to_csv(three.runs()).rstrip("\n")
    assert "cut.csv" in refused(tmp_path, "cut.csv", text[:end])


@pytest.mark.parametrize(("epochs", "whole"), [(2, True), (3, True), (4, False)])
@pytest.mark.parametrize("state", ["running", "failed", "done"])
@pytest.mark.parametrize("form", WRITERS)
def test_a_run_has_at_most_its_epochs(store, tmp_path, form, epochs, whole, state):
    config = RunConfig(loss="mse", epochs=3)
    store.add_runs([config])
    store.start(config.key(), {})
    store.record_all(config.key(), [epoch(i) for i in range(epochs)])
    if state != "running":
        store.finish(config.key(), state)
    text = WRITERS[form](store.runs())
    if whole and (epochs == 3 or state != "done"):
        assert len(exchange.read(text)) == epochs
    elif whole:
        assert "must have all 3 epochs, got 2" in refused(tmp_path, f"e.{form}", text)
    else:
        assert "epoch must be between 0 and 2, got 3" in refused(tmp_path, f"e.{form}", text)
