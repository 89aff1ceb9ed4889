"""Readers of the publishers' formats, on small files written here byte by byte."""

import functools
import gzip
import hashlib
import http.server
import io
import pickle
import re
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hypersimplex_study import catalog, data
from hypersimplex_study.batches import prepare
from hypersimplex_study.formats import DataError, read_cifar_binary, read_cifar_python, read_idx

FILES = tuple(catalog.FASHION.content)
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.tobytes()


def fashion_files(rng):
    train_x, test_x = (rng.integers(0, 256, (n, 28, 28), np.uint8) for n in (12, 5))
    train_y, test_y = (np.arange(n, dtype=np.uint8) % 10 for n in (12, 5))
    return dict(zip(FILES, (train_x, train_y, test_x, test_y), strict=True))


@pytest.fixture
def fashion(tmp_path):
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    arrays = fashion_files(np.random.default_rng(0))
    for name, array in arrays.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return tmp_path, arrays


def cifar_batches(n=3):
    rng = np.random.default_rng(1)
    return {b: (rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, 10, n)) for b in BATCHES}


def binary(rows, labels):
    return b"".join(bytes([y]) + r.tobytes() for y, r in zip(labels.tolist(), rows, strict=True))


def test_fashion_mnist_is_read_and_found_by_the_variable(fashion, monkeypatch):
    root, arrays = fashion
    monkeypatch.setenv("HYPERSIMPLEX_DATA", str(root))
    found = data.load("fashion-mnist")
    np.testing.assert_array_equal(found.train_x[..., 0], arrays[FILES[0]])
    np.testing.assert_array_equal(found.test_y, arrays[FILES[3]])
    assert found.train_x.shape == (12, 28, 28, 1)
    assert prepare(found, None, 0.0, True, torch.device("cpu")).test.batch(torch.arange(5)).shape == (5, 1, 28, 28)


def test_unpacked_idx_files_do_as_well(fashion):
    root, arrays = fashion
    for path in (root / "fashion-mnist").iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    np.testing.assert_array_equal(data.load("fashion-mnist", root).train_y, arrays[FILES[1]])


def test_missing_data_says_what_to_do(tmp_path):
    message = re.escape(
        f"fashion-mnist is not in {tmp_path} (looked for fashion-mnist/train-images-idx3-ubyte[.gz]); run"
    )
    with pytest.raises(DataError, match=message + " `hypersimplex data fetch fashion-mnist`"):
        data.load("fashion-mnist", tmp_path)


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_a_cut_gzip_is_named(fashion, keep):
    root, _ = fashion
    path = root / "fashion-mnist" / f"{FILES[0]}.gz"
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz is cut short or damaged .* fetch it again"):
        data.load("fashion-mnist", root)


def test_a_cut_idx_file_is_named(tmp_path):
    (tmp_path / "x").write_bytes(idx(np.zeros((4, 5), np.uint8))[:-3])
    with pytest.raises(DataError, match=re.escape("must hold 32 bytes for shape (4, 5), got 29")):
        read_idx(tmp_path / "x")


def test_what_is_no_idx_file_is_named(tmp_path):
    (tmp_path / "x").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="is not an idx file of bytes"):
        read_idx(tmp_path / "x")


def test_cifar_binary_and_python_batches_agree(tmp_path):
    batches = cifar_batches()
    roots = {kind: tmp_path / kind for kind in ("bin", "py")}
    for kind, root in roots.items():
        (root / "cifar-10" / f"cifar-10-batches-{kind}").mkdir(parents=True)
    for name, (rows, labels) in batches.items():
        (roots["bin"] / f"cifar-10/cifar-10-batches-bin/{name}.bin").write_bytes(binary(rows, labels))
        content = {"data": rows, "labels": labels.tolist(), "batch_label": name}
        (roots["py"] / f"cifar-10/cifar-10-batches-py/{name}").write_bytes(pickle.dumps(content, protocol=2))
    first, second = (data.load("cifar-10", root) for root in roots.values())
    assert first.fingerprint == second.fingerprint
    assert first.train_x.shape == (15, 32, 32, 3)
    # channel 1 of row 2, column 3 of the first image: the publisher stores channel by channel
    assert first.train_x[0, 2, 3, 1] == batches["data_batch_1"][0][0, 1024 + 2 * 32 + 3]


def test_a_cut_cifar_batch_is_named(tmp_path):
    (tmp_path / "b.bin").write_bytes(bytes(3073 * 2 - 1))
    with pytest.raises(DataError, match="whole records of 3073 bytes, got 6145 bytes"):
        read_cifar_binary(tmp_path / "b.bin")


def test_cifar_100_is_not_cifar_10(tmp_path):
    (tmp_path / "b.bin").write_bytes(bytes([77]) + bytes(3072))
    with pytest.raises(DataError, match="labels 0 to 9, got 77; it is not CIFAR-10"):
        read_cifar_binary(tmp_path / "b.bin")


class Evil:
    def __reduce__(self):
        return (print, ("a pickle ran code",))


def test_a_pickle_cannot_run_code(tmp_path, capsys):
    (tmp_path / "b").write_bytes(pickle.dumps({"data": Evil(), "labels": [1]}))
    with pytest.raises(DataError, match=r"asks for .*print, which no CIFAR-10 batch does"):
        read_cifar_python(tmp_path / "b")
    assert capsys.readouterr().out == ""


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


@pytest.fixture
def small_cifar(server, monkeypatch):
    """A CIFAR-10 of three images a batch behind a real web server, with its own hashes."""
    folder, url = server
    batches = {f"{n}.bin": binary(*content) for n, content in cifar_batches().items()}
    archive = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, raw in batches.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    source = replace(
        catalog.CIFAR,
        downloads={archive.name: "sha256:" + hashlib.sha256(archive.read_bytes()).hexdigest()},
        content={n: hashlib.sha256(raw).hexdigest() for n, raw in batches.items()},
    )
    monkeypatch.setitem(catalog.SOURCES, "cifar-10", source)
    return url, archive


def test_fetch_downloads_checks_and_unpacks(small_cifar, tmp_path):
    url, _ = small_cifar
    catalog.fetch("cifar-10", tmp_path / "data", url)
    assert {verdict for _, verdict in catalog.check("cifar-10", tmp_path / "data")} == {"ok"}
    assert data.load("cifar-10", tmp_path / "data").train_x.shape == (15, 32, 32, 3)
    packed = tmp_path / "data/cifar-10/cifar-10-batches-bin/data_batch_1.bin"
    Path(f"{packed}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    assert {verdict for _, verdict in catalog.check("cifar-10", tmp_path / "data")} == {"ok"}
    assert data.load("cifar-10", tmp_path / "data").train_x.shape == (15, 32, 32, 3)
    damaged = tmp_path / "data/cifar-10/cifar-10-batches-bin/data_batch_2.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x00")
    verdicts = dict(catalog.check("cifar-10", tmp_path / "data"))
    assert verdicts[str(damaged)].startswith("wrong content")


def test_fetch_refuses_a_wrong_hash(small_cifar, tmp_path):
    url, archive = small_cifar
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(DataError, match=r"does not have the known hash .* try again or name another --mirror"):
        catalog.fetch("cifar-10", tmp_path / "data", url)
    assert not (tmp_path / "data/cifar-10/cifar-10-batches-bin").exists()


def test_fetch_names_an_address_that_does_not_answer(server, tmp_path):
    _, url = server
    with pytest.raises(DataError, match=r"cannot be downloaded .*404.*; name another --mirror"):
        catalog.fetch("fashion-mnist", tmp_path, url)


def test_fetch_names_the_fault_before_it_downloads(tmp_path):
    with pytest.raises(DataError, match="mirror must begin with https:// or http:// or ftp://, got 'foo'"):
        catalog.fetch("cifar-10", tmp_path, "foo")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be made \(Not a directory\); name another --data-folder"):
        catalog.fetch("cifar-10", tmp_path / "file", "http://127.0.0.1:9")
    with pytest.raises(DataError) as error:
        catalog.fetch("cifar-10", tmp_path, "http://127.0.0.1:9")
    found = re.sub(r"\[.*\] ", "", str(error.value))
    assert found.startswith("http://127.0.0.1:9/cifar-10-binary.tar.gz cannot be downloaded (Connection refused)")
