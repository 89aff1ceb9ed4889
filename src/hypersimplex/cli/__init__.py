"""The `hypersimplex` command. A subcommand imports what it needs when it runs."""

from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:  # the command is installed with every flavour of the package
    raise SystemExit(
        f"the hypersimplex command needs {error.name}; install it with: pip install 'hypersimplex[study]'"
    ) from None

from hypersimplex._version import __version__
from hypersimplex.bench.command import bench
from hypersimplex.cli.data import data_app
from hypersimplex.cli.study import study_app

app = typer.Typer(
    help="Does the HyperSimplex loss help? Compare losses on known data or on your own.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study_app, name="study")
app.add_typer(data_app, name="data")
app.command()(bench)


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
