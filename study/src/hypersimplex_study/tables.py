"""Tables in their publishers' text formats, converted once and chunk by chunk to arrays mapped into memory.

So ten million rows cost disk, not memory: 11,000,000 x 28 numbers are 1.2 GB of file, of which the system keeps in
memory what it likes. Text of any length is read in chunks of a fixed number of rows.
"""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hypersimplex_study.formats import Array, DataError

CHUNK = 200_000  # rows of csv, or about as many of libsvm, at a time
BYTES = 32 << 20
PACKED: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
VERSION = 1

Block = tuple[Any, Array]  # rows, dense or sparse, and their labels


def encode(known: dict[str, int], values: Any, learn: bool) -> Array:
    """Numbers for the texts of a column, in the order in which the training rows show them; others are missing."""
    import pandas as pd

    numbers, texts = pd.factorize(values)
    if learn:
        for text in texts:
            known.setdefault(str(text), len(known))
    found: Array = np.array([known.get(str(t), np.nan) for t in texts] + [np.nan], dtype=np.float32)
    return np.asarray(found[numbers])  # -1, a gap, takes the last


@dataclass(frozen=True)
class Columns:
    """How to read a csv file: its label, the columns to leave out, and the ones that hold text."""

    label: str
    text: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # all others if empty
    positive: Callable[[Any], Any] = lambda y: y > 0.5
    label_is_text: bool = False


def read_csv(path: Path, columns: Columns, codes: dict[str, dict[str, int]], learn: bool) -> Iterator[Block]:
    """Read a csv file with a header: numbers as they are, text columns as codes, of which each has its own."""
    import pandas as pd

    text = dict.fromkeys(columns.text, str) | ({columns.label: str} if columns.label_is_text else {})
    wanted = {columns.label, *columns.only}
    usecols = (lambda c: c in wanted) if columns.only else None
    with opened(path, "csv") as file:
        for frame in pd.read_csv(file, chunksize=CHUNK, dtype=text, usecols=usecols):
            absent = [c for c in (columns.label, *columns.only) if c not in frame.columns]
            if absent:
                raise DataError(f"{path} must have a column {absent[0]!r}, got {', '.join(map(str, frame.columns))}")
            rows = frame[frame[columns.label].notna()]
            features = [c for c in (columns.only or rows.columns) if c != columns.label]
            x = np.empty((len(rows), len(features)), np.float32)
            for i, name in enumerate(features):
                x[:, i] = encode(codes[name], rows[name], learn) if name in columns.text else _numbers(rows[name])
            yield x, np.asarray(columns.positive(rows[columns.label])).astype(np.uint8)


def _numbers(values: Any) -> Array:
    # benchm-ml writes the month as "c-8".
    if values.dtype.kind not in "fiub":
        values = values.str.removeprefix("c-")
    return np.asarray(values.astype(np.float32))


def read_libsvm(path: Path, dense: int | None) -> Iterator[Block]:
    """Read libsvm text, `label index:value ...`; with `dense`, indices from 1 to it become that many columns.

    Without it rows stay sparse, and an index is its column as it stands.
    """
    from sklearn.datasets import load_svmlight_file

    with opened(path, "libsvm text") as file:
        while lines := file.readlines(BYTES):
            x, y = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float32, zero_based=True)
            if not np.isin(y, (-1, 0, 1)).all():
                wrong = y[~np.isin(y, (-1, 0, 1))][0]
                raise DataError(f"{path} must have labels 0 and 1, or -1 and 1, got {wrong:g}")
            if dense is not None:
                if x.shape[1] > dense + 1:
                    raise DataError(f"{path} must have features 1 to {dense}, got {x.shape[1] - 1}")
                whole = np.zeros((x.shape[0], dense + 1), np.float32)
                whole[:, : x.shape[1]] = x.toarray()
                x = whole[:, 1:]
            yield x, (y > 0).astype(np.uint8)


@contextmanager
def opened(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Open a file, packed or not; what goes wrong while it is read is an error that names it."""
    try:
        with PACKED.get(path.suffix, open)(path, "rb") as file:
            yield file
    except DataError:
        raise
    except (ValueError, TypeError, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as {kind} ({error}); fetch it again") from error


class Writer:
    """Appends blocks to plain files of numbers in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.digest = folder, hashlib.sha256()
        self.rows = self.columns = self.entries = 0
        self.sparse = False

    def add(self, block: Block) -> None:
        x, y = block
        if not isinstance(x, np.ndarray):
            self.sparse = True
            self._put("ends", x.indptr[1:].astype(np.int64) + self.entries)
            self._put("indices", x.indices.astype(np.int32))
            self._put("values", x.data)
            self.entries += x.nnz
        else:
            self._put("x", x)
        self._put("y", y)
        self.rows += len(y)
        self.columns = max(self.columns, x.shape[1])

    def _put(self, name: str, array: Array) -> None:
        raw = np.ascontiguousarray(array).data
        with open(self.folder / name, "ab") as file:
            file.write(raw)
        self.digest.update(raw)

    def about(self) -> dict[str, Any]:
        return {"rows": self.rows, "columns": self.columns, "sparse": self.sparse, "sha256": self.digest.hexdigest()}


def converted(
    root: Path, files: Mapping[str, list[Path]], read: Callable[[str, Path], Iterable[Block]]
) -> tuple[dict[str, Block], str]:
    """Convert the files of every part unless that was done before; return the parts and a hash of their content.

    The rows are float32 (N, F), mapped into memory, or a sparse matrix over mapped arrays.
    """
    stamp = [[str(p.name), p.stat().st_size, p.stat().st_mtime_ns] for paths in files.values() for p in paths]
    known = hashlib.sha256(json.dumps([VERSION, stamp, str(root.resolve())]).encode()).hexdigest()[:16]
    writable = os.access(root, os.W_OK)
    place = root / "converted" if writable else Path.home() / ".cache" / "hypersimplex" / "converted"
    folder = place / known
    if not (folder / "about.json").is_file():
        place.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="converting-", dir=place))
        try:
            about = {part: _convert(fresh / part, paths, part, read) for part, paths in files.items()}
            (fresh / "about.json").write_text(json.dumps(about))
            fresh.rename(folder)
        except OSError:
            # Another process may have been faster; any other reason is an error.
            if not (folder / "about.json").is_file():
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    about = json.loads((folder / "about.json").read_text())
    columns = max(a["columns"] for a in about.values())
    digest = hashlib.sha256("".join(a["sha256"] for a in about.values()).encode()).hexdigest()[:16]
    return {part: _mapped(folder / part, a, columns) for part, a in about.items()}, digest


def _convert(
    folder: Path, paths: list[Path], part: str, read: Callable[[str, Path], Iterable[Block]]
) -> dict[str, Any]:
    writer = Writer(folder)
    for path in paths:
        for block in read(part, path):
            writer.add(block)
    if writer.rows == 0:
        raise DataError(f"{paths[0]} must have rows, got none; fetch it again")
    return writer.about()


def _mapped(folder: Path, about: dict[str, Any], columns: int) -> Block:
    def array(name: str, kind: Any) -> Array:
        path = folder / name
        return np.memmap(path, kind, "r") if path.exists() and path.stat().st_size else np.zeros(0, kind)

    y = np.asarray(array("y", np.uint8)).astype(np.int64)
    if not about["sparse"]:
        return array("x", np.float32).reshape(about["rows"], about["columns"]), y
    from scipy import sparse

    ends = np.concatenate([[0], array("ends", np.int64)])
    matrix = sparse.csr_matrix(
        (array("values", np.float32), array("indices", np.int32), ends), (about["rows"], columns)
    )
    return matrix, y
