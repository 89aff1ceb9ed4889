"""What the subcommands share: options, errors in one line, a store that is only read."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hypersimplex_study.store import Store

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended
DEFAULT_STORE = Path("study.sqlite")

StoreOption = Annotated[Path, typer.Option("--store", help="SQLite file that holds the runs.", dir_okay=False)]
FolderOption = Annotated[
    str | None,
    typer.Option(
        "--data-folder", help="Folder of the data sets; default $HYPERSIMPLEX_DATA, or ~/.cache/hypersimplex."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def fail(error: object, code: int = 1) -> typer.Exit:
    from hypersimplex_study.console import Terminal

    Terminal(stderr=True).print(f"error: {error}", style="red")
    return typer.Exit(code)


@contextmanager
def explained(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors that a user can do something about into one line."""
    known: tuple[type[Exception], ...] = (ValueError, RuntimeError, OSError, *kinds)
    try:
        yield
    except BrokenPipeError:  # `| head` has read enough: no error, and the command's own end knows how to take it
        raise
    except known as error:
        raise fail(error) from None


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C: a shell starts what it puts in the background with Ctrl-C switched off."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def existing(path: Path) -> Iterator["Store"]:
    """Open a store for reading. Every problem with it becomes an error of one line."""
    from hypersimplex_study.store import Store

    if not path.exists():
        raise fail(
            f"store {path} does not exist; create it with `hypersimplex study run`, or name another with --store"
        )
    with explained(), Store(path, read_only=True) as opened:
        yield opened


def write(text: str) -> None:
    """Write to standard output. For a terminal, leave out control characters."""
    from hypersimplex_study.console import visible

    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()  # at Python's exit, a reader that has gone would be an error
