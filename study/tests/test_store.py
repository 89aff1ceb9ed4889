"""The store: a run is its configuration, several processes share a file, and it moves between machines."""

import gzip
import json
import multiprocessing
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from hypersimplex_study import exchange
from hypersimplex_study.config import RunConfig
from hypersimplex_study.locks import claim, is_claimed
from hypersimplex_study.store import Store, StoreError
from trainings import epoch


def test_a_run_is_its_configuration(store):
    config = RunConfig(loss="mse", seed=3)
    store.add_runs([config, RunConfig(loss="mse", seed=3)])
    store.add_runs([config])
    assert [r.config for r in store.runs()] == [config]


def test_what_a_loss_does_not_use_does_not_make_another_run():
    assert RunConfig(loss="mse", tau=3.0, prior=0.1).key() == RunConfig(loss="mse").key()
    assert RunConfig(loss="hypersimplex", tau=3.0).key() != RunConfig(loss="hypersimplex").key()
    assert RunConfig(loss="hypersimplex-half", prior=0.3) == RunConfig(loss="hypersimplex-half")
    assert RunConfig(momentum=0.5).key() == RunConfig().key()
    assert RunConfig(optimizer="sgd", momentum=0.5).key() != RunConfig(optimizer="sgd").key()


def test_the_key_does_not_change_between_versions():
    # Stores in use are found again by this key: a change here makes every finished run unknown.
    assert RunConfig(evaluation="running").key() == "2ac75001cd24eae2"
    assert RunConfig(evaluation="recomputed").key() == "a7d3d344a063a8e8"
    assert RunConfig().key() == "74d8053c66133644"


def test_two_decisions_share_one_training(store):
    own, plain = RunConfig(loss="hypersimplex"), RunConfig(loss="hypersimplex-argmax")
    store.add_runs([own, plain])
    key = own.training().key()
    assert key == plain.training().key()
    store.record(key, epoch(0, own=0.9, argmax=0.3))
    first, second = store.runs()
    assert first.accuracies() == [(0.9, pytest.approx(0.91))]
    assert second.accuracies() == [(0.3, pytest.approx(0.31))]


def test_restart_drops_the_epochs_of_a_lost_history(store):
    config = RunConfig()
    store.add_runs([config])
    store.record_all(config.key(), [epoch(i) for i in range(5)])
    store.record_all(config.key(), [epoch(0, own=0.7)], restart=True)
    assert store.epochs(config.key()) == [epoch(0, own=0.7)]


@pytest.mark.parametrize("write", [exchange.to_json, exchange.to_csv], ids=["json", "csv"])
def test_export_and_import_give_the_same_store(store, tmp_path, write):
    configs = [RunConfig(loss=name, seed=s, epochs=3) for name in ("mse", "hypersimplex-argmax") for s in (0, 1)]
    configs.append(RunConfig(dataset="a, b.csv", label="y", subset=100, optimizer="sgd", augment=True, epochs=3))
    store.add_runs(configs[:-1])
    store.add_runs(configs[-1:], tuning=True)
    for i, config in enumerate(configs):
        store.start(config.training().key(), {"torch": "2", "commit": None, "data": "x"})
        # 1/7 has no short decimal form: digits must survive
        store.record_all(
            config.training().key(), [epoch(e, own=(e + i) / 7, loss=None if e else 0.1) for e in range(3)]
        )
        store.finish(config.training().key(), "done")
    text = write(store.runs())
    assert len(exchange.read(text)) == len(configs) * 3
    with Store(tmp_path / "other.sqlite") as other:
        assert exchange.import_rows(other, exchange.read(text)) == (5, 0, 0)
        moved = [replace(r, attempts=1) for r in other.runs()]
        assert moved == store.runs()
        assert write([replace(r, attempts=1) for r in other.runs()]) == text
        assert exchange.import_rows(other, exchange.read(text)) == (0, 5, 0)


def test_an_unfinished_run_moves_as_unfinished_and_a_finished_one_is_never_replaced(store, tmp_path):
    config = RunConfig()
    store.add_runs([config])
    store.start(config.key(), {})
    store.record_all(config.key(), [epoch(0), epoch(1)])
    text = exchange.to_json(store.runs())
    with Store(tmp_path / "other.sqlite") as other:
        assert exchange.import_rows(other, exchange.read(text)) == (0, 0, 1)
        assert other.state(config.key()) == "pending"
        assert len(other.epochs(config.key())) == 2
        other.finish(config.key(), "done")
        longer = [dict(r, epoch=i, state="done") for i, r in enumerate(json.loads(text) * 3)]
        assert exchange.import_rows(other, longer) == (0, 1, 0)


def test_an_older_export_sets_no_unfinished_run_back(store):
    config = RunConfig()
    store.add_runs([config])
    store.start(config.key(), {})
    store.record(config.key(), epoch(0))
    older = exchange.to_json(store.runs())
    store.record_all(config.key(), [epoch(1), epoch(2)])
    assert exchange.import_rows(store, exchange.read(older)) == (0, 0, 1)
    assert store.epochs(config.key()) == [epoch(i) for i in range(3)]


def test_runs_that_share_a_training_are_counted_as_taken_over(store, tmp_path):
    configs = [RunConfig(loss=name, epochs=1) for name in ("hypersimplex", "hypersimplex-argmax", "mse")]
    store.add_runs(configs)
    store.record(configs[0].key(), epoch(0))
    store.finish(configs[0].key(), "done")
    with Store(tmp_path / "other.sqlite") as other:
        assert exchange.import_rows(other, exchange.read(exchange.to_json(store.runs()))) == (2, 0, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{}]", "row 1 must have the columns of an export, 'run' is missing"),
        ("[{", "not whole JSON"),
        ("a,b\n1,2\n", "row 1 must have the columns of an export, 'run' is missing"),
        ("garbage", "row 1 must have the columns of an export"),
        ("", "row 1 must have the columns of an export"),
        ('{"a": 1}', "row 1 must have the columns of an export"),
        ("[3]", "row 1 must have the columns of an export"),
        ("[]", "the file must hold at least one run, got none"),
    ],
)
def test_what_is_no_export_is_refused(text, message):
    with pytest.raises(exchange.ExportFileError, match=message):
        exchange.read(text)


def test_a_bad_number_names_its_row_and_column(store):
    store.add_runs([RunConfig()])
    text = exchange.to_csv(store.runs()).replace("128", "many")
    with pytest.raises(exchange.ExportFileError, match="row 2: batch_size cannot be 'many'"):
        exchange.read(text)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("lr", "fast", "row 1: lr cannot be 'fast'"),
        ("seed", None, "row 1: seed must have a value, got none"),
        ("seed", True, "row 1: seed cannot be True"),
        ("epoch", "0", "row 1: epoch cannot be '0'"),
        ("test_accuracy", "x", "row 1: test_accuracy cannot be 'x'"),
        ("provenance", [1], r"row 1: provenance cannot be \[1\]"),
        ("seconds", None, "row 1: seconds must have a value"),
        ("loss", "mes", "run 74d8053c66133644: loss must be one of"),
    ],
)
def test_values_of_json_are_checked_like_those_of_csv(store, column, value, message):
    store.add_runs([RunConfig()])
    store.record(RunConfig().key(), epoch(0))
    (row,) = json.loads(exchange.to_json(store.runs()))
    with pytest.raises(exchange.ExportFileError, match=message):
        exchange.read(json.dumps([{**row, column: value}]))


def test_an_export_file_is_named_and_may_be_packed(store, tmp_path):
    store.add_runs([RunConfig()])
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(exchange.to_csv(store.runs()).encode()))
    assert len(exchange.read_file(tmp_path / "e.csv.gz")) == 1
    (tmp_path / "e.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(exchange.ExportFileError, match=r"e\.txt must be text in UTF-8"):
        exchange.read_file(tmp_path / "e.txt")
    (tmp_path / "e.json").write_text("[]")
    with pytest.raises(exchange.ExportFileError, match=r"e\.json: the file must hold at least one run"):
        exchange.read_file(tmp_path / "e.json")


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.sqlite").write_text("not a database, but long enough to look at" * 100)
    with pytest.raises(StoreError, match="file is not a database; name another file with --store"):
        Store(tmp_path / "x.sqlite")


def test_another_schema_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "x.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(StoreError, match="another version"):
        Store(tmp_path / "x.sqlite")


def test_a_full_disk_is_named_and_loses_nothing_written_before(store):
    config = RunConfig()
    store.add_runs([config])
    store.record(config.key(), epoch(0))
    # SQLite's own limit raises the very error a full disk does.
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full; make room and run the same command again"):
        store.record_all(config.key(), [epoch(i) for i in range(5000)])
    assert store.epochs(config.key()) == [epoch(0)]


def _hammer(path, seed, ready):
    with Store(path) as store:
        config = RunConfig(seed=seed)
        ready.wait()
        store.add_runs([config, RunConfig(seed=-1)])
        for i in range(60):
            store.record(config.key(), epoch(i))
            store.event(config.key(), f"{seed} {i}")


def test_processes_on_one_file_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(3)
    workers = [context.Process(target=_hammer, args=(tmp_path / "s.sqlite", s, ready)) for s in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [w.exitcode for w in workers] == [0, 0, 0]
    with Store(tmp_path / "s.sqlite") as store:
        assert len(store.runs()) == 4
        assert [len(store.epochs(RunConfig(seed=s).key())) for s in range(3)] == [60, 60, 60]
        assert len(store.events()) == 180


def test_a_new_file_that_another_process_is_preparing_is_waited_for(tmp_path):
    with closing(sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        soon = threading.Timer(0.3, other.execute, ["COMMIT"])
        soon.start()
        with Store(tmp_path / "s.sqlite") as store:
            store.add_runs([RunConfig()])
            assert len(store.runs()) == 1
        soon.join()


def test_a_claim_is_exclusive_and_ends(tmp_path):
    with claim(tmp_path, "a") as first, claim(tmp_path, "a") as second, claim(tmp_path, "b") as other:
        assert (first, second, other) == (True, False, True)
        assert is_claimed(tmp_path, "a")
    assert not is_claimed(tmp_path, "a")
    assert not is_claimed(tmp_path, "never")


FIRST_EXPORT = """\
run,dataset,label,subset,validation,network,width,loss,tau,prior,batch_size,seed,epochs,optimizer,lr,schedule,momentum,\
augment,precision,tuning,state,attempts,error,epoch,train_loss,epoch_lr,val_accuracy,test_accuracy,val_accuracy_own,\
test_accuracy_own,val_accuracy_argmax,test_accuracy_argmax,seconds,provenance
2ac75001cd24eae2,digits,,,0.1,mlp,64,cross-entropy,,,128,0,20,adam,0.001,constant,0.0,False,float32,False,running,1,,0,1.25,\
0.001,0.5,0.51,0.5,0.51,0.4,0.41000000000000003,0.125,"{""torch"": ""2""}"
"""


def test_an_export_of_the_first_version_is_read(store):
    assert exchange.import_rows(store, exchange.read(FIRST_EXPORT)) == (0, 0, 1)
    (run,) = store.runs()
    assert run.config == RunConfig(evaluation="running")
    assert run.epochs == (epoch(0),)
    assert run.scores() == run.accuracies() == [(0.5, 0.51)]


def test_a_store_of_the_first_version_is_used_by_old_and_new_programs(tmp_path):
    path = tmp_path / "first.sqlite"
    with Store(path) as made:
        made.add_runs([RunConfig()])
        made.record(RunConfig().key(), epoch(0))
        # The first version had no such table; everything else is as it was.
        made._db.execute("DROP TABLE measures")
    with Store(path) as store:
        assert store.runs()[0].epochs == (epoch(0),)
        # What programs of the first version write.
        values = (RunConfig().key(), 1, 1.25, 0.001, 0.5, 0.51, 0.4, 0.4 + 0.01, 0.125)
        store._db.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        assert store._db.execute("PRAGMA user_version").fetchone()[0] == 1
        assert store.epochs(RunConfig().key()) == [epoch(0), epoch(1)]


@pytest.mark.parametrize("write", [exchange.to_json, exchange.to_csv], ids=["json", "csv"])
def test_measures_of_boosted_trees_are_kept_and_moved(store, tmp_path, write):
    config = RunConfig(dataset="higgs", network="lightgbm", loss="hypersimplex", batch_size=64, optimizer="sgd")
    assert (config.batch_size, config.optimizer, config.tau) == (0, "adam", 1.0)
    store.add_runs([config])
    rows = [replace(epoch(i), val_auc=0.7 + i / 7, test_auc=0.6, test_log_loss=None if i else 0.5) for i in range(2)]
    store.record_all(config.key(), rows)
    store.finish(config.key(), "done")
    (run,) = store.runs()
    assert list(run.epochs) == store.epochs(config.key()) == rows
    assert (run.measure, run.scores()) == ("auc", [(0.7, 0.6), (0.7 + 1 / 7, 0.6)])
    with Store(tmp_path / "other.sqlite") as other:
        exchange.import_rows(other, exchange.read(write(store.runs())))
        assert other.runs() == [replace(run, attempts=0)]
    store.record_all(config.key(), rows[:1], restart=True)
    assert store.epochs(config.key()) == rows[:1]
