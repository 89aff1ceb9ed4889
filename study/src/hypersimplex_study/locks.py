"""One worker a training, across processes: a file lock that the operating system drops when its holder dies."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def claim(folder: Path, key: str) -> Iterator[bool]:
    """Yield whether this process may work on the training; the file stays, since removing it would race."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / f"{key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_claimed(folder: Path, key: str) -> bool:
    if not (folder / f"{key}.lock").exists():
        return False
    with claim(folder, key) as free:
        return not free
