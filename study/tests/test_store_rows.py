"""What the store keeps of a training, and finds again by the data it was begun on."""

from dataclasses import replace

from hypersimplex_study.config import RunConfig
from trainings import epoch


def test_a_longer_history_leaves_nothing_of_a_shorter_one(store):
    config = RunConfig()
    store.add_runs([config])
    store.record(config.key(), replace(epoch(0), test_f1=0.7))
    assert store.epochs(config.key()) == [replace(epoch(0), test_f1=0.7)]
    store.adopt(config.key(), [epoch(0), epoch(1)], "running", None, {})
    assert store.epochs(config.key()) == [epoch(0), epoch(1)]


def test_data_are_known_by_their_name_and_how_they_are_read(store):
    for label in (None, "y"):
        config = RunConfig(dataset="a.csv", label=label)
        store.add_runs([config])
        store.start(config.key(), {"data": f"read with {label}"})
    for label in (None, "y"):
        assert store.fingerprints(RunConfig(dataset="a.csv", label=label)) == {f"read with {label}"}
