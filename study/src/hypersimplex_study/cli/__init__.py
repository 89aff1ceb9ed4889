"""The `hypersimplex` command. A subcommand imports what it needs when it runs."""

import shutil
from typing import Annotated

import typer

import hypersimplex
import hypersimplex_study
from hypersimplex_study.cli.data import data_app
from hypersimplex_study.cli.study import study_app

app = typer.Typer(
    help="Does the HyperSimplex loss help? Compare losses on known data or on your own.",
    no_args_is_help=True,
    # In a narrow terminal the columns of rich would cut the names of options.
    rich_markup_mode="rich" if shutil.get_terminal_size().columns >= 80 else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study_app, name="study")
app.add_typer(data_app, name="data")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"hypersimplex-study {hypersimplex_study.__version__}, hypersimplex {hypersimplex.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the versions.")
    ] = False,
) -> None: ...
