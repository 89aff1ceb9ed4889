"""`hypersimplex study`: run, look at, compare, report, move."""

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from hypersimplex_study.cli.options import MetricOption, RunOptions, taking
from hypersimplex_study.cli.shared import (
    DEFAULT_STORE,
    INTERRUPTED,
    JsonOption,
    QuietOption,
    StoreOption,
    existing,
    explained,
    fail,
    stopped_by_sigterm,
    write,
)

study_app = typer.Typer(help="Compare losses over batch sizes and seeds.", no_args_is_help=True)
BaselineOption = Annotated[
    str | None, typer.Option(help="Compare with this loss; default cross-entropy, for boosted trees binary.")
]


class ReportFormat(str, Enum):
    html = "html"
    markdown = "markdown"
    csv = "csv"
    json = "json"


class ExportFormat(str, Enum):
    json = "json"
    csv = "csv"


@study_app.command()
@taking(RunOptions)
def run(options: RunOptions) -> None:
    """Run a study. Runs that the store already holds are not repeated.

    Losses for networks: cross-entropy, cross-entropy-warmup, label-smoothing, squentropy, hinge, mse, hypersimplex,
    hypersimplex-half, hypersimplex-first-quarter, hypersimplex-first-half. With -argmax behind a
    name, plain argmax decides in place of offsets or thresholds.

    Losses for boosted trees: binary, squared-error, hypersimplex, hypersimplex-ones, hypersimplex-paper.
    """
    try:
        with stopped_by_sigterm(), explained(ImportError):
            from hypersimplex_study import commands

            finished = commands.main(options, shlex.join(["hypersimplex", *sys.argv[1:]]))
    except KeyboardInterrupt:
        raise fail("interrupted; run the same command again to continue", INTERRUPTED) from None
    if not finished:
        raise typer.Exit(1)


@study_app.command()
def status(
    store: StoreOption = DEFAULT_STORE,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the summary.")] = False,
) -> None:
    """Show which runs are done, running, missing, diverged or failed."""
    from hypersimplex_study import status

    with existing(store) as opened:
        if json:
            write(status.as_json(opened))
        else:
            status.show(opened, quiet)


@study_app.command()
def report(
    store: StoreOption = DEFAULT_STORE,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; default: beside the store for html, otherwise standard output."
        ),
    ] = None,
    format: Annotated[ReportFormat, typer.Option(help="Format: html, markdown, csv or json.")] = ReportFormat.html,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures to this folder, as SVG.", file_okay=False)
    ] = None,
    baseline: BaselineOption = None,
    metric: MetricOption = None,
    quiet: QuietOption = False,
) -> None:
    """Write the report as one HTML file that needs no other, or its table as markdown, csv or json."""
    from hypersimplex_study.report import gather, place_of, render

    with existing(store) as opened:
        if output is not None or format.value == "html":
            output = place_of(store, output)
        content = gather(opened, baseline, metric and metric.value)
        text = render(content, format.value)
        if figures is not None:
            from hypersimplex_study.page import figure_files

            figures.mkdir(parents=True, exist_ok=True)
            for name, picture in figure_files(content).items():
                (figures / name).write_text(picture, encoding="utf-8")
        if output is None:
            write(text)
            return
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    if not quiet:
        typer.echo(f"wrote {output}", err=True)


@study_app.command()
def compare(
    store: StoreOption = DEFAULT_STORE,
    baseline: BaselineOption = None,
    metric: MetricOption = None,
    paper_rule: Annotated[
        bool, typer.Option("--paper-rule", help="Score a run by its best epoch on the test set, as in the paper.")
    ] = False,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the verdict.")] = False,
) -> None:
    """Print how the losses compare with the baseline."""
    from hypersimplex_study.comparison import Comparison
    from hypersimplex_study.console import Terminal

    with existing(store) as opened:
        made = Comparison.of_store(opened, baseline, metric and metric.value, paper_rule)
        if json:
            write(made.as_json())
        else:
            made.show(Terminal(), quiet)


@study_app.command()
def export(
    store: StoreOption = DEFAULT_STORE,
    format: Annotated[ExportFormat, typer.Option(help="Format: json or csv.")] = ExportFormat.json,
) -> None:
    """Write one row per run and epoch to standard output."""
    from hypersimplex_study import exchange

    with existing(store) as opened:
        write((exchange.to_json if format.value == "json" else exchange.to_csv)(opened.runs()))


@study_app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file written by `export`: JSON or CSV, also as .gz. - means standard input.", allow_dash=True
        ),
    ],
    store: StoreOption = DEFAULT_STORE,
    quiet: QuietOption = False,
) -> None:
    """Read an export into a store. Runs that are finished in the store stay as they are."""
    from hypersimplex_study import exchange
    from hypersimplex_study.store import Store

    with explained():
        table = exchange.read_file(file)
        with Store(store) as opened:
            taken, kept, left = exchange.import_rows(opened, table)
    if not quiet:
        typer.echo(f"{store}: imported {taken} runs, {kept} were finished here before, {left} still to do", err=True)
