"""`hypersimplex data` lists, downloads and checks the known data sets."""

from typing import Annotated

import typer

from hypersimplex_study.cli.shared import FolderOption, explained

data_app = typer.Typer(help="List, download and check the known data sets.", no_args_is_help=True)


@data_app.command("list")
def data_list(data_folder: FolderOption = None) -> None:
    """List the known data sets, and say whether their files are there."""
    from rich.table import Table

    from hypersimplex_study import catalog, tabular
    from hypersimplex_study.console import Terminal

    root = catalog.data_folder(data_folder)
    table = Table(title=f"data folder {root}")
    for column in ("name", "what", "files"):
        table.add_column(column, overflow="fold")
    table.add_row("digits", "1,797 scanned digits, 8 x 8, inside scikit-learn", "no file needed")
    for source in catalog.SOURCES.values():
        missing = [file for file, path, _ in catalog.files(source.name, root) if path is None]
        table.add_row(source.name, source.about, "there" if not missing else f"missing: {missing[0]}, …")
    for name, one in tabular.SOURCES.items():
        there = "there" if tabular.present(one, root) else "missing"
        table.add_row(name, (tabular.note(name) or "").rstrip("."), there)
    Terminal().print(table)


def _known(name: str, check: bool = False) -> str:
    from hypersimplex_study import catalog, tabular
    from hypersimplex_study.config import one_of

    if name == "digits":
        raise ValueError("digits is part of scikit-learn; it has no file to fetch or check")
    if name in tabular.SOURCES and check:
        raise ValueError(f"{name} has no known hash to check; `hypersimplex data list` says whether it is there")
    if name in tabular.SOURCES:
        raise ValueError(f"{name} is not fetched by this command; get it from {tabular.SOURCES[name].get}")
    one_of("name", name, list(catalog.SOURCES))
    return name


@data_app.command("fetch")
def data_fetch(
    name: Annotated[list[str], typer.Argument(help="fashion-mnist or cifar-10, or both.")],
    data_folder: FolderOption = None,
    mirror: Annotated[str | None, typer.Option(help="Download from this address instead of the publisher's.")] = None,
) -> None:
    """Download data sets from their publishers and check their hashes."""
    from hypersimplex_study import catalog
    from hypersimplex_study.console import Terminal

    with explained():
        for one in [_known(n) for n in name]:
            where = catalog.fetch(one, catalog.data_folder(data_folder), mirror)
            Terminal().print(f"{one}: {where}")


@data_app.command("check")
def data_check(
    name: Annotated[list[str] | None, typer.Argument(help="fashion-mnist or cifar-10; default: both.")] = None,
    data_folder: FolderOption = None,
) -> None:
    """Compare the files with the publishers' hashes."""
    from hypersimplex_study import catalog
    from hypersimplex_study.console import Terminal

    good = True
    with explained():
        for one in [_known(n, check=True) for n in name or catalog.SOURCES]:
            for file, found in catalog.check(one, catalog.data_folder(data_folder)):
                good = good and found == "ok"
                Terminal().print(f"{one}  {file}: {found}", style=None if found == "ok" else "red")
    if not good:
        raise typer.Exit(1)
