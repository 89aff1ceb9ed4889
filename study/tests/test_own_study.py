"""A study on one's own data, as a new user would begin it."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import load_wine

from hypersimplex_study import commands, exchange
from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load_cached
from hypersimplex_study.store import Store
from test_cli import call
from trainings import epoch

FAST = ["--threads", "1", "--width", "8", "--loss", "mse", "--loss", "hypersimplex", "--seed", "0", "--seed", "1"]


@pytest.fixture
def wine(tmp_path):
    x, y = load_wine(return_X_y=True, as_frame=True)
    path = tmp_path / "wine.csv"
    pd.concat([x, y.rename("kind")], axis=1).to_csv(path, index=False)
    return path


def runs(path):
    with Store(path) as store:
        return store.runs()


@pytest.mark.parametrize(
    "wrong", [["--label", "colour"], ["--label", "kind", "--drop", "x"], ["--label", "kind", "--batch-size", "4000"]]
)
def test_an_error_leaves_no_file(wine, tmp_path, wrong):
    store = tmp_path / "new" / "s.sqlite"
    call("study", "run", "--dataset", wine, *wrong, *FAST, "--store", store, code=1)
    assert not store.parent.exists()


def test_a_presets_batches_are_cut_to_the_data(wine, tmp_path):
    store = tmp_path / "s.sqlite"
    own = ["--dataset", wine, "--label", "kind", "--epochs", "1", "--lr", "0.01"]
    output = call("study", "run", "--preset", "demo", *own, *FAST, "--store", store)
    sizes = {r.config.batch_size for r in runs(store)}
    assert len(sizes) == 2
    assert min(sizes) == 64
    assert f"cut to {max(sizes)}, the training samples of" in output


def test_batches_that_were_named_are_not_cut(wine, tmp_path):
    own = ["--dataset", wine, "--label", "kind", "--batch-size", "4000"]
    output = call("study", "run", *own, *FAST, "--store", tmp_path / "s.sqlite", code=1)
    assert "batch_size must be at most" in output


def test_columns_are_dropped_and_ids_are_named(wine, tmp_path):
    table = pd.read_csv(wine)
    table["bottle"] = np.arange(len(table))
    table.to_csv(wine, index=False)
    store = tmp_path / "s.sqlite"
    own = ["--dataset", wine, "--label", "kind", "--epochs", "1", *FAST, "--store", store]
    assert "column 'bottle' looks like an ID" in " ".join(call("study", "run", *own).split())
    assert "looks like an ID" not in call("study", "run", *own, "--drop", "bottle")
    # The same file read in two ways is two studies in one store, and both move.
    assert {r.config.drop for r in runs(store)} == {(), ("bottle",)}
    for form in ("csv", "json"):
        (tmp_path / form).write_text(call("study", "export", "--store", store, "--format", form))
        call("study", "import", tmp_path / form, "--store", tmp_path / f"{form}.sqlite")
        assert [r.config for r in runs(tmp_path / f"{form}.sqlite")] == [r.config for r in runs(store)]


def test_the_key_of_a_run_without_them_is_what_it_was():
    assert RunConfig(evaluation="running").key() == RunConfig(evaluation="running", drop=(), resize=None).key()
    assert RunConfig(drop=("a",)).key() != RunConfig(drop=("b",)).key() != RunConfig(resize=8).key()


def test_images_of_mixed_sizes(tmp_path):
    rng = np.random.default_rng(0)
    for name, size in (("cat", (9, 8)), ("dog", (5, 17))):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(tmp_path / "pets" / name / f"{i}.png")
    store = tmp_path / "s.sqlite"
    own = ["--dataset", tmp_path / "pets", "--network", "cnn", "--epochs", "1", *FAST, "--store", store]
    assert "--resize 32, say, makes all of one size" in " ".join(call("study", "run", *own, code=1).split())
    call("study", "run", *own, "--resize", "8")
    assert {(r.config.resize, r.state) for r in runs(store)} == {(8, "done")}


def test_wine_at_the_defaults_is_as_good_as_logistic_regression(wine, tmp_path):
    store = tmp_path / "s.sqlite"
    chosen = ["--loss", "cross-entropy", "--loss", "hypersimplex", "--threads", "1"]
    output = call("study", "run", "--dataset", wine, "--label", "kind", *chosen, "--store", store)
    assert "every training takes at least 200 steps" in output
    said = "logistic regression on the same standardized inputs: 9"
    assert said in " ".join(output.split())
    # At the end of training: fifteen validation samples choose an early epoch among equals.
    assert min(r.accuracies()[-1][1] for r in runs(store)) > 0.95


def test_too_little_training_is_said(wine, tmp_path):
    own = ["--dataset", wine, "--label", "kind", "--epochs", "1", "--lr", "0.00001", *FAST]
    output = " ".join(call("study", "run", *own, "--store", tmp_path / "s.sqlite").split())
    assert "the networks are behind it" in output


@pytest.mark.parametrize("form", ["csv", "json", "markdown", "html"])
def test_a_report_after_tuning_alone(tmp_path, form):
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        config = RunConfig(epochs=1)
        store.add_runs([config], tuning=True)
        store.record(config.key(), epoch(0))
        store.finish(config.key(), "done")
    output = call("study", "report", "--store", path, "--format", form, "-o", tmp_path / "report", code=1)
    assert "has tuning runs alone; the same `study run` goes on to the compared ones" in " ".join(output.split())
    assert not (tmp_path / "report").exists()


def store_of(path, *trained):
    """A store of finished runs: of each its seed, and the fingerprint of its data."""
    with Store(path) as store:
        for seed, data in trained:
            config = RunConfig(dataset="d.csv", label="y", epochs=1, seed=seed)
            store.add_runs([config])
            store.start(config.key(), {"data": data})
            store.record(config.key(), epoch(0))
            store.finish(config.key(), "done")
    return path


def test_an_import_does_not_mix_data_under_one_name(tmp_path):
    file, here = tmp_path / "a.json", store_of(tmp_path / "here.sqlite", (2, "b1"), (3, "b1"))
    for trained in ([(0, "a1"), (1, "a1")], [(0, "b1"), (1, "a1")]):
        there = store_of(tmp_path / f"there-{trained[0][1]}.sqlite", *trained)
        file.write_text(call("study", "export", "--store", there))
        output = " ".join(call("study", "import", file, "--store", here, code=1).split())
        assert "dataset d.csv must have one content in all runs of a store" in output
        assert f"with this file {here} would have a1, b1; name another file with --store" in output
        assert [r.config.seed for r in runs(here)] == [2, 3]
    file.write_text(call("study", "export", "--store", store_of(tmp_path / "same.sqlite", (7, "b1"))))
    call("study", "import", file, "--store", here)
    assert [r.config.seed for r in runs(here)] == [2, 3, 7]


def test_an_export_of_mixed_data_is_refused(tmp_path):
    rows = exchange.rows(runs(store_of(tmp_path / "mixed.sqlite", (0, "a1"), (1, "b1"))))
    with Store(tmp_path / "new.sqlite") as store:
        with pytest.raises(ValueError, match=r"dataset d.csv must have one content .* a1, b1"):
            exchange.import_rows(store, rows)
        assert store.runs() == []


class Elsewhere:
    """An engine that is not on this machine."""

    local = False

    def run(self, store, trainings, runtime, on_epoch):
        raise AssertionError(f"nothing is missing, got {len(trainings)} trainings")


def test_a_finished_study_needs_neither_its_data_nor_its_engine(wine, tmp_path, monkeypatch):
    own = ["study", "run", "--dataset", wine, "--label", "kind", *FAST, "--store", tmp_path / "s.sqlite"]
    call(*own)
    before = {r.key for r in runs(tmp_path / "s.sqlite")}
    assert {r.config.min_steps for r in runs(tmp_path / "s.sqlite")} == {200}

    def again():
        assert "every training takes at least 200 steps" in call(*own)
        assert {r.key for r in runs(tmp_path / "s.sqlite")} == before

    with monkeypatch.context() as patched:
        patched.setattr(commands, "make_engine", lambda *_: Elsewhere())
        again()
        wine.rename(tmp_path / "moved.csv")
        load_cached.cache_clear()
        again()
    again()


def test_batches_are_cut_to_data_that_is_gone(wine, tmp_path):
    own = ["study", "run", "--preset", "demo", "--dataset", wine, "--label", "kind", "--epochs", "1", "--lr", "0.01"]
    own += [*FAST, "--store", tmp_path / "s.sqlite"]
    call(*own)
    before = {r.key for r in runs(tmp_path / "s.sqlite")}
    wine.unlink()
    load_cached.cache_clear()
    call(*own)
    assert {r.key for r in runs(tmp_path / "s.sqlite")} == before
