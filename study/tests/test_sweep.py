"""The grid, the presets, and the choice of settings."""

import math
from dataclasses import replace

import pytest

from hypersimplex_study import published
from hypersimplex_study.data import load_cached
from hypersimplex_study.engines import InProcess
from hypersimplex_study.presets import PRESETS
from hypersimplex_study.records import Run
from hypersimplex_study.results import best_epoch, dataset_names, results
from hypersimplex_study.sweep import Study, override, read_toml, run_study, trainings
from hypersimplex_study.train import Runtime, passes
from trainings import epoch

SMALL = Study(loss=("mse", "hypersimplex", "hypersimplex-argmax"), seed=(0, 1), epochs=2, width=8, batch_size=(512,))


def study_in(store, study):
    run_study(study, store, InProcess(), Runtime(threads=1), lambda *_: None, lambda *_: None)


def test_the_papers_preset_is_its_280_runs():
    paper = PRESETS["paper"]
    runs = paper.grid(paper.seed)
    assert len(runs) == len(trainings(runs)) == 2 * 7 * 5 * 4 == 280
    assert {(c.lr, c.epochs, c.width, c.validation, c.optimizer, c.schedule, c.augment) for c in runs} == {
        (1e-4, 600, 64, 0.0, "adam", "constant", True)
    }
    assert {c.tau for c in runs if c.loss.startswith("hyper")} == {1.5}
    assert {c.evaluation for c in runs} == {"running"}
    assert {c.prior for c in runs if c.loss.startswith("hyper")} == {0.5}
    assert set(published.MEANS["cifar-10"]) == set(paper.loss)


@pytest.mark.parametrize("name", ["demo", "laptop"])
def test_presets_that_tune_give_every_loss_the_same(name):
    study = PRESETS[name]
    assert study.tunes
    assert len(study.seed) == 10
    assert len(study.batch_size) == 3
    assert len(study.lr) >= 4
    tuning = study.first()
    for loss in study.loss:
        mine = [c for c in tuning if c.loss == loss]
        assert {c.lr for c in mine} == set(study.lr)
        assert len(mine) == len(study.lr) * len(study.batch_size) * len(study.dataset)


def test_two_decisions_are_one_training():
    assert len(SMALL.grid(SMALL.seed)) == 6
    assert len(trainings(SMALL.grid(SMALL.seed))) == 4


def test_a_study_tunes_then_compares_at_the_chosen_setting(store):
    study = replace(SMALL, lr=(1e-9, 1e-2), tuning_seed=(7,), epochs=4)
    study_in(store, study)
    compared = [r for r in store.runs() if not r.tuning]
    tuned = [r for r in store.runs() if r.tuning]
    assert len(tuned) == 3 * 2
    assert {r.config.seed for r in compared} == {0, 1}
    # a learning rate of 1e-9 learns nothing
    assert {r.config.lr for r in compared} == {1e-2}
    assert len(compared) == 6
    study_in(store, study)
    assert {r.attempts for r in store.runs()} == {1}


def test_a_study_goes_on_at_the_setting_it_began_to_compare(store):
    """Where settings are equal on the validation split, one that has compared runs stays, finished or not."""
    study = replace(SMALL, loss=("mse",), lr=(0.001, 0.01, 0.1), tuning_seed=(7,))
    store.add_runs(study.first(), tuning=True)
    for c in study.first():
        store.record_all(c.key(), [epoch(0), epoch(1)])
        store.finish(c.key(), "done")
    assert {c.lr for c in study.second(store)} == {0.01}
    store.add_runs([c for c in study.compared() if c.lr == 0.1])
    assert {c.lr for c in study.second(store)} == {0.1}


def test_a_tuning_seed_must_not_be_compared():
    with pytest.raises(ValueError, match="tuning_seed must differ from the compared seeds, got 1 in both"):
        replace(SMALL, lr=(0.1, 0.2), tuning_seed=(1,))
    assert replace(SMALL, tuning_seed=(1,)).tuning() == []  # one setting: nothing is tuned


def test_batches_are_cut_to_the_samples_where_those_are_known():
    study = replace(SMALL, dataset=("digits", "flights"), batch_size=(64, 4096), samples={"digits": 1000})
    found = {(run.dataset, run.batch_size) for run in study.compared()}
    assert found == {("digits", 64), ("digits", 1000), ("flights", 64), ("flights", 4096)}


def test_choosing_needs_a_validation_split():
    with pytest.raises(ValueError, match="validation must be above 0 where settings are to be chosen, got 0"):
        replace(SMALL, lr=(0.1, 0.2), validation=0.0)


def test_toml_takes_single_values_and_lists(tmp_path):
    (tmp_path / "s.toml").write_text('dataset = "digits"\nlr = [0.1, 1]\nseed = 3\naugment = true\nsubset = 500\n')
    study = override(PRESETS["demo"], read_toml(tmp_path / "s.toml"))
    assert (study.dataset, study.lr, study.seed, study.subset) == (("digits",), (0.1, 1.0), (3,), 500)
    assert study.epochs == PRESETS["demo"].epochs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bath_size = 3", "bath_size is not a field of a study; the fields are dataset, loss"),
        ('epochs = "many"', "epochs must be of type int, got 'many'"),
        ("seed = [1.5]", "seed must be of type int, got 1.5"),
        ("augment = 1", "augment must be of type bool, got 1"),
        ("epochs = = 3", "is not TOML"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        override(Study(), read_toml(tmp_path / "s.toml"), str(tmp_path / "s.toml"))
    assert "s.toml" in str(error.value)


def test_options_that_were_not_given_change_nothing():
    assert override(SMALL, {"epochs": None, "seed": [], "lr": None}) == SMALL


def finished(config, values):
    epochs = tuple(epoch(i, own=v) for i, v in enumerate(values))
    return Run(config.key(), config.training().key(), config, False, "done", 1, None, {}, epochs)


def test_the_validation_split_chooses_the_epoch_and_the_papers_rule_the_best_test():
    (config, *_) = SMALL.grid([0])
    run = finished(config, [0.5, 0.7, 0.7, 0.6])
    assert best_epoch(run) == 1
    (row,) = results([run])
    # the shared test double puts test accuracy 0.01 above validation
    assert (row.validation, row.score) == (0.7, pytest.approx(0.71))
    worse_on_test = replace(run.epochs[3], test_accuracy=0.99)
    (row,) = results([replace(run, epochs=(*run.epochs[:3], worse_on_test))])
    assert row.score == pytest.approx(0.71)
    assert row.paper_score == 0.99


def test_protocols_are_kept_apart():
    (config, *_) = SMALL.grid([0])
    longer = replace(config, epochs=9)
    assert dataset_names([config, replace(config, seed=5)]) == {
        c.key(): "digits" for c in (config, replace(config, seed=5))
    }
    assert dataset_names([config, longer])[longer.key()] == "digits (epochs 9)"


def test_a_run_without_a_result_does_not_rename_the_others():
    (config, *_) = SMALL.grid([0])
    failed = replace(finished(replace(config, network="foo"), []), state="failed")
    assert [r.dataset for r in results([finished(config, [0.5]), failed])] == ["digits"]


def test_one_file_with_two_labels_is_one_store(store, tmp_path):
    rows = [f"{i % 7},{'ab'[i % 2]},{'cd'[i // 2 % 2]}" for i in range(80)]
    (tmp_path / "t.csv").write_text("x,y,z\n" + "\n".join(rows))
    own = replace(SMALL, dataset=(str(tmp_path / "t.csv"),), batch_size=(32,), epochs=1)
    study_in(store, replace(own, label="y"))
    study_in(store, replace(own, label="z"))
    assert {(r.config.label, r.state) for r in store.runs()} == {("y", "done"), ("z", "done")}


def test_other_content_under_one_name_is_refused_before_any_run(store, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x,y\n" + "\n".join(f"{i % 7},{'ab'[i % 2]}" for i in range(80)))
    own = replace(SMALL, dataset=(str(file),), label="y", batch_size=(32,), epochs=1)
    study_in(store, own)
    file.write_text("x,y\n" + "\n".join(f"{i % 5},{'ab'[i % 2]}" for i in range(80)))
    load_cached.cache_clear()
    for seeds in (own.seed, (5,)):  # nothing is missing, or something is
        with pytest.raises(ValueError, match="has other content"):
            study_in(store, replace(own, seed=seeds))
    assert {r.state for r in store.runs()} == {"done"}
    file.unlink()
    load_cached.cache_clear()
    study_in(store, own)  # nothing is missing, and nobody can look


def test_the_laptop_preset_has_what_a_reviewer_asks_for():
    study = PRESETS["laptop"]
    runs = study.at_one_setting()
    seeds = {loss: {c.seed for c in runs if c.loss == loss} for loss in study.loss}
    for loss in ("cross-entropy", "hypersimplex", "hypersimplex-argmax"):
        assert seeds[loss] == set(study.seed)
    for loss in ("label-smoothing", "squentropy", "mse", "hypersimplex-half", "hypersimplex-half-argmax"):
        assert seeds[loss] == set(study.seed[:3])
    assert set(study.dataset) == {"fashion-mnist", "cifar-10"}
    samples = round(study.subset * (1 - study.validation))
    assert samples >= 10_240
    assert study.batch_size == (256, 2048, samples)
    for config in runs:
        steps = config.epochs * passes(config, samples) * math.ceil(samples / config.batch_size)
        assert steps >= 200
    assert 1 / 4 < study.tuning_epochs / study.epochs < 1 / 2


def test_the_exact_protocol_at_the_largest_batch_is_one_command():
    given = {"dataset": ["fashion-mnist"], "batch_size": [8192], "seed": [0], "epochs": 5}
    runs = override(PRESETS["paper"], given).first()
    assert [c.loss for c in runs] == ["cross-entropy", "hinge", "mse", "hypersimplex-half-argmax"]
    # whatever is not in the command is what the paper's runs have
    full = {
        c.loss: c for c in PRESETS["paper"].first() if (c.dataset, c.batch_size, c.seed) == ("fashion-mnist", 8192, 0)
    }
    assert [replace(full[c.loss], epochs=5) for c in runs] == runs


def test_short_tuning_runs_choose_for_the_long_ones(store):
    study = replace(SMALL, lr=(1e-9, 1e-2), tuning_seed=(7,), epochs=5, tuning_epochs=3, secondary_seeds=1)
    study_in(store, replace(study, loss=("cross-entropy", "mse", "hypersimplex")))
    tuned, compared = ([r for r in store.runs() if r.tuning is which] for which in (True, False))
    assert {(len(r.epochs), r.config.tunes_for) for r in tuned} == {(3, 5)}
    assert {(len(r.epochs), r.config.lr) for r in compared} == {(5, 1e-2)}
    assert sorted((r.config.loss, r.config.seed) for r in compared) == [
        ("cross-entropy", 0),
        ("cross-entropy", 1),
        ("hypersimplex", 0),
        ("hypersimplex", 1),
        ("mse", 0),
    ]
    # one protocol, one name
    assert {r.dataset for r in results(store.runs())} == {"digits"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tuning_epochs": 0}, "tuning_epochs must be at least 1, got 0"),
        ({"secondary_seeds": 0}, "secondary_seeds must be at least 1, got 0"),
    ],
)
def test_a_bad_part_of_a_study_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)
