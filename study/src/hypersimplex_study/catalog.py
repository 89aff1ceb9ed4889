"""The image sets the study knows by name: where their files lie, where they come from, what they hash to."""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypersimplex_study.formats import DataError, read_bytes, read_cifar_python

VARIABLE = "HYPERSIMPLEX_DATA"
SCHEMES = ("https://", "http://", "ftp://")


@dataclass(frozen=True)
class Source:
    """Files of one data set. Hashes of content are of the unpacked bytes, since a gzip header carries a date."""

    name: str
    about: str
    base_url: str
    downloads: dict[str, str]  # file name: hash of the download, as pooch writes it
    folders: tuple[str, ...]  # where the files may lie, below the data folder
    content: dict[str, str]  # file name: sha256 of the unpacked content


FASHION = Source(
    "fashion-mnist",
    "60,000 + 10,000 gray images of clothes, 28 x 28, ten classes (MIT)",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
    ("fashion-mnist", "FashionMNIST/raw"),
    {
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
)
CIFAR = Source(
    "cifar-10",
    "50,000 + 10,000 color photographs, 32 x 32, ten classes",
    "https://www.cs.toronto.edu/~kriz/",
    {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
    ("cifar-10/cifar-10-batches-bin", "cifar-10-batches-bin"),
    {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
)
CIFAR_PYTHON_FOLDERS = ("cifar-10/cifar-10-batches-py", "cifar-10-batches-py")
SOURCES = {s.name: s for s in (FASHION, CIFAR)}


def data_folder(given: str | Path | None = None) -> Path:
    return Path(given or os.environ.get(VARIABLE) or Path.home() / ".cache" / "hypersimplex").expanduser()


def missing(name: str, root: Path, looked_for: str, do: str | None = None) -> DataError:
    return DataError(
        f"{name} is not in {root} (looked for {looked_for}); {do or f'run `hypersimplex data fetch {name}`'}, "
        f"or name the folder that holds it with --data-folder or {VARIABLE}"
    )


def find_file(root: Path, folders: tuple[str, ...], file: str) -> Path | None:
    for folder in folders:
        for path in (root / folder / file, root / folder / f"{file}.gz"):
            if path.is_file():
                return path
    return None


def files(name: str, root: Path) -> Iterator[tuple[str, Path | None, str]]:
    """Every file, where it lies, and the hash of its content: CIFAR-10's python batches where only those may be."""
    source = SOURCES[name]
    python = name == "cifar-10" and not any((root / f).is_dir() for f in source.folders)
    for file, digest in source.content.items():
        file = file.removesuffix(".bin") if python else file
        yield file, find_file(root, CIFAR_PYTHON_FOLDERS if python else source.folders, file), digest


def check(name: str, root: Path) -> list[tuple[str, str]]:
    """Return (file, verdict) for every file; a verdict is "ok", "missing", or what is wrong."""
    rows = []
    for file, path, digest in files(name, root):
        if path is None:
            rows.append((file, "missing"))
            continue
        try:
            found = hashlib.sha256(_content(name, path)).hexdigest()
            wrong = f"wrong content: sha256 {found[:12]}…, expected {digest[:12]}…; fetch it again"
            rows.append((str(path), "ok" if found == digest else wrong))
        except DataError as error:
            rows.append((str(path), str(error)))
    return rows


def _content(name: str, path: Path) -> bytes:
    if name != "cifar-10" or ".bin" in path.suffixes:
        return read_bytes(path)
    # The binary batch of the same records is what the known hash is of.
    images, labels = read_cifar_python(path)
    records = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return b"".join(bytes([y]) + r.tobytes() for y, r in zip(labels.tolist(), records, strict=True))


def fetch(name: str, root: Path, base_url: str | None = None) -> Path:
    """Download a data set with pooch, checked by hash, and unpack it where the readers look."""
    import pooch

    source = SOURCES[name]
    target = root / source.folders[0]
    target = target if name == "fashion-mnist" else target.parent
    base = (base_url or source.base_url).rstrip("/") + "/"
    if not base.startswith(SCHEMES):
        raise DataError(f"mirror must begin with {' or '.join(SCHEMES)}, got {base_url!r}")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target} cannot be made ({error.strerror}); name another --data-folder") from error
    downloads = pooch.create(path=target, base_url=base, registry=source.downloads)
    for file in source.downloads:
        try:
            archive = Path(downloads.fetch(file))
        except ValueError as error:
            # pooch removes a download whose hash is wrong before it raises.
            raise DataError(
                f"{base}{file} does not have the known hash ({error}); try again or name another --mirror"
            ) from error
        except OSError as error:
            raise DataError(f"{base}{file} cannot be downloaded ({_reason(error)}); name another --mirror") from error
        if file.endswith(".tar.gz"):
            _unpack(archive, target)
    return target


def _reason(error: OSError) -> str:
    """Say why a connection failed, without the classes and addresses of the libraries it failed in."""
    inner = getattr(error.args[0], "reason", None) if error.args else None
    return str(error) if inner is None else str(inner).rpartition(": ")[2]


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the batches into a new folder and rename it: an interrupted unpacking leaves nothing half done."""
    fresh = target / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            stream = tar.extractfile(member) if member.isfile() and name.endswith(".bin") else None
            if stream is not None:
                with stream, open(fresh / name, "wb") as out:
                    shutil.copyfileobj(stream, out)
    final = target / "cifar-10-batches-bin"
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)
