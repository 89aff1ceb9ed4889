"""Readers of the publishers' files: idx (Fashion-MNIST), CIFAR-10 binary and python batches."""

import gzip
import io
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
RECORD = 1 + 3 * 32 * 32


class DataError(ValueError):
    """A file is missing, cut short or not what its name says; the message ends with what to do."""


def read_bytes(path: Path) -> bytes:
    """Return a file's content, unpacked if it is gzipped."""
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} is cut short or damaged ({error}); delete it and fetch it again") from error


def read_idx(path: Path) -> Array:
    """Read one idx file of unsigned bytes: images as (N, H, W), labels as (N,)."""
    raw = read_bytes(path)
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or not 1 <= raw[3] <= 4:
        raise DataError(f"{path} is not an idx file of bytes (it starts with {raw[:4].hex(' ')}); fetch it again")
    head = 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, head, 4))
    expected = head + int(np.prod(shape, dtype=np.int64))
    if len(raw) != expected:
        raise DataError(f"{path} must hold {expected} bytes for shape {shape}, got {len(raw)}; fetch it again")
    # A copy: torch refuses to share memory that cannot be written.
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape).copy()


def read_cifar_binary(path: Path) -> tuple[Array, Array]:
    """Read one binary batch: a label byte and 3072 pixel bytes a record, channel by channel."""
    raw = np.frombuffer(read_bytes(path), np.uint8)
    if raw.size == 0 or raw.size % RECORD:
        raise DataError(f"{path} must hold whole records of {RECORD} bytes, got {raw.size} bytes; fetch it again")
    records = raw.reshape(-1, RECORD)
    return _cifar(path, records[:, 1:], records[:, 0].astype(np.int64))


def read_cifar_python(path: Path) -> tuple[Array, Array]:
    """Read one pickled batch. Only NumPy arrays and plain values are unpickled, so a foreign file cannot run code."""
    try:
        content = _Arrays(io.BytesIO(read_bytes(path)), encoding="latin1").load()
        data, labels = content["data"], np.asarray(content["labels"], dtype=np.int64)
        shaped = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape == (len(labels), 3072)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} is not a CIFAR-10 python batch ({error}); fetch it again") from error
    if not shaped:
        raise DataError(f"{path} must hold one row of 3072 bytes a label; fetch it again")
    return _cifar(path, data, labels)


def _cifar(path: Path, rows: Array, labels: Array) -> tuple[Array, Array]:
    if labels.max() > 9:
        raise DataError(f"{path} must hold labels 0 to 9, got {labels.max()}; it is not CIFAR-10, fetch it again")
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


class _Arrays(pickle.Unpickler):
    allowed = frozenset(
        [
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        ]
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise DataError(f"the pickle asks for {module}.{name}, which no CIFAR-10 batch does; fetch the file again")
        if name == "_reconstruct":
            # Old files name a module that newer NumPy deprecates.
            return np.zeros(0).__reduce__()[0]
        return super().find_class(module, name)
