"""The `hypersimplex` command. A subcommand imports what it needs when it runs."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from hypersimplex._checks import missing

try:
    import typer
except ModuleNotFoundError as error:  # the command is installed with every flavor of the package
    raise SystemExit(str(missing("the hypersimplex command", str(error.name), "study"))) from None

from hypersimplex._version import __version__
from hypersimplex.cli.data import data_app
from hypersimplex.cli.shared import fail
from hypersimplex.cli.study import study_app

SUITE = Path("benchmarks/peers/__main__.py")
app = typer.Typer(
    help="Does the HyperSimplex loss help? Compare losses on known data or on your own.",
    no_args_is_help=True,
    # In a narrow terminal the columns of rich would cut the names of options.
    rich_markup_mode="rich" if shutil.get_terminal_size().columns >= 80 else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study_app, name="study")
app.add_typer(data_app, name="data")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(context: typer.Context) -> None:
    """Compare the operator with other libraries. This command runs inside a checkout of the repository.

    There `hypersimplex bench --help` lists its options.
    """
    if not SUITE.is_file():
        where = f"inside a checkout of hypersimplex, because it starts {SUITE}"
        raise fail(f"hypersimplex bench must run {where}; got {Path.cwd()}")
    raise typer.Exit(subprocess.call([sys.executable, "-m", "benchmarks.peers", *context.args]))


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...
