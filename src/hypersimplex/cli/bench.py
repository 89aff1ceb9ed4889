"""`hypersimplex bench` starts the comparison with peers, which is part of a checkout."""

import subprocess
import sys
from pathlib import Path

import typer

SUITE = Path("benchmarks/peers/__main__.py")


def bench(context: typer.Context) -> None:
    """Compare the operator with other libraries. This command runs inside a checkout of the repository.

    There `hypersimplex bench --help` lists its options.
    """
    if not SUITE.is_file():
        typer.echo(
            f"error: hypersimplex bench must run inside a checkout of hypersimplex, because it starts {SUITE}; "
            f"got {Path.cwd()}",
            err=True,
        )
        raise typer.Exit(1)
    raise typer.Exit(subprocess.call([sys.executable, "-m", "benchmarks.peers", *context.args]))
