"""The `hypersimplex` command."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as error:  # the command is installed with every flavour of the package
    raise SystemExit(
        f"the hypersimplex command needs {error.name}; install it with: pip install 'hypersimplex[study]'"
    ) from None

from hypersimplex._version import __version__
from hypersimplex.bench.command import bench

app = typer.Typer(
    help="Does the HyperSimplex loss help? Compare losses on known data or on your own.", no_args_is_help=True
)
study_app = typer.Typer(help="Compare losses over batch sizes and seeds.", no_args_is_help=True)
data_app = typer.Typer(help="The data sets known by name.", no_args_is_help=True)
app.add_typer(study_app, name="study")
app.add_typer(data_app, name="data")
app.command()(bench)

StoreOption = Annotated[Path, typer.Option("--store", help="SQLite file that holds the runs.", dir_okay=False)]
FolderOption = Annotated[
    str | None,
    typer.Option("--data-folder", help="Folder of the data sets; default HYPERSIMPLEX_DATA, or ~/.cache/hypersimplex."),
]
BaselineOption = Annotated[
    str | None, typer.Option(help="Loss the others are compared with; default cross-entropy, of boosted trees binary.")
]
DEFAULT_STORE = Path("study.sqlite")


class Preset(str, Enum):
    demo = "demo"
    laptop = "laptop"
    paper = "paper"
    laptop_tabular = "laptop-tabular"
    paper_tabular = "paper-tabular"


class EngineName(str, Enum):
    process = "process"
    processes = "processes"
    ray = "ray"


class ReportFormat(str, Enum):
    html = "html"
    markdown = "markdown"
    csv = "csv"
    json = "json"


class ExportFormat(str, Enum):
    json = "json"
    csv = "csv"


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


def _fail(error: object) -> typer.Exit:
    Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
    return typer.Exit(1)


@contextmanager
def _existing(path: Path) -> Iterator[Any]:
    """A store that is only read; whatever is wrong with it or its content is one line."""
    from hypersimplex.study.store import Store, StoreError

    if not path.exists():
        raise _fail(f"store {path} does not exist; `hypersimplex study run` makes one, --store names another")
    try:
        with Store(path, read_only=True) as opened:
            yield opened
    except (StoreError, ValueError, OSError) as error:
        raise _fail(error) from None


@study_app.command()
def run(
    preset: Annotated[
        Preset | None,
        typer.Option(
            metavar="NAME",
            help="Study to start from: demo, laptop, paper, laptop-tabular, paper-tabular. Every option overrides a "
            "part of it; the defaults shown here are those without one.",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with the same fields.", dir_okay=False)] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A name in `hypersimplex data list`, a CSV or Parquet file, an image folder, module:function; "
            "default digits.",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Label column of a CSV or Parquet file.")] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="One of those above. Repeatable; default cross-entropy, hinge, mse, hypersimplex.",
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(metavar="INT", help="At most the training samples. Repeatable; default 128.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="INT", help="Repeatable; default 0, 42, 1337, 2025, 31415.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of boosted trees: ten rounds each; default 20.")] = None,
    lr: Annotated[
        list[float] | None,
        typer.Option(metavar="FLOAT", help="Learning rate; the validation split chooses among several; default 0.001."),
    ] = None,
    tau: Annotated[
        list[float] | None,
        typer.Option(metavar="FLOAT", help="Temperature of HyperSimplex; chosen like lr; default 1.5, the paper's."),
    ] = None,
    tuning_seed: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INT",
            help="Seed that only chooses lr and tau; the others then run the chosen ones alone; default none.",
        ),
    ] = None,
    prior: Annotated[
        float | None, typer.Option(help="k of `hypersimplex` as a share of the batch; default: the labels'.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="mlp, cnn or paper; boosted trees: lightgbm, lightgbm-paper; default mlp.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Width of the network, leaves of a boosted tree; default 64, the paper's.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adam or sgd; default adam.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="constant, linear (lr x batch / 128), cosine or warmup (then cosine); default constant."),
    ] = None,
    subset: Annotated[
        int | None, typer.Option(help="Use this many training samples; of boosted trees: at most; default all.")
    ] = None,
    validation: Annotated[
        float | None, typer.Option(help="Part of the training samples held out for every choice; default 0.1.")
    ] = None,
    augment: Annotated[bool | None, typer.Option(help="Random crops and flips; default no.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16; default float32.")] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="BatchNorm statistics and thresholds: recomputed over training samples before every evaluation, or "
            "the running ones of training; default recomputed."
        ),
    ] = None,
    min_steps: Annotated[
        int | None,
        typer.Option(help="Steps that a training has at least: an epoch is then several passes; default none."),
    ] = None,
    tuning_epochs: Annotated[int | None, typer.Option(help="Epochs of the tuning runs; default: all.")] = None,
    secondary_seeds: Annotated[
        int | None,
        typer.Option(help="How many seeds the losses beside hypersimplex and the baseline run; default: all."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu",
    threads: Annotated[int | None, typer.Option(metavar="INT", help="A process; default torch's.", min=1)] = None,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Memory format of images.")] = False,
    compile: Annotated[bool, typer.Option("--compile", help="torch.compile the network.")] = False,
    engine: Annotated[
        EngineName | None,
        typer.Option(metavar="NAME", help="This process, several local processes, or a ray cluster; default process."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="INT", help="How many local processes; implies --engine processes.", min=1)
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; default: a local one is started.")
    ] = None,
    retries: Annotated[int, typer.Option(metavar="INT", help="How often a worker may die.", min=0)] = 3,
    resume: Annotated[
        bool, typer.Option(help="Go on from checkpoints, or drop them and start unfinished runs again.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the grid and an estimate of the time; run nothing.")
    ] = False,
    data_folder: FolderOption = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Run what is missing of a study.

    Losses of networks: cross-entropy, cross-entropy-warmup, label-smoothing, squentropy, hinge, mse, hypersimplex,
    hypersimplex-argmax, hypersimplex-half, hypersimplex-half-argmax.

    Losses of boosted trees: binary, squared-error, hypersimplex, hypersimplex-ones, hypersimplex-paper.
    """
    options = locals()
    from hypersimplex.study import commands
    from hypersimplex.study.train import Runtime

    runtime = Runtime(device, threads, channels_last, compile, data_folder)
    try:
        study = commands.make_study(preset.value if preset else None, config, options)
        if dry_run:
            commands.dry_run(study, runtime, processes or 1, store)
            return
        chosen = commands.make_engine(engine.value if engine else None, processes, address, retries)
        line = shlex.join(["hypersimplex", *sys.argv[1:]])
        finished = commands.run(study, store, chosen, runtime, resume, line)
    except KeyboardInterrupt:
        raise _fail("interrupted; the same command goes on from here") from None
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        raise _fail(error) from None
    if not finished:
        raise typer.Exit(1)


@study_app.command()
def status(store: StoreOption = DEFAULT_STORE) -> None:
    """Show which runs are done, running, missing, diverged or failed."""
    from hypersimplex.study import commands

    with _existing(store) as opened:
        commands.status(opened)


@study_app.command()
def report(
    store: StoreOption = DEFAULT_STORE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: report.html, or standard output.")
    ] = None,
    format: Annotated[ReportFormat, typer.Option(help="html, markdown, csv or json.")] = ReportFormat.html,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures to this folder, as SVG.", file_okay=False)
    ] = None,
    baseline: BaselineOption = None,
) -> None:
    """Write the report: one HTML file that needs nothing else, or the table as markdown, csv or json."""
    from hypersimplex.study.report import figure_files, render

    with _existing(store) as opened:
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
            for name, picture in figure_files(opened, baseline).items():
                (figures / name).write_text(picture, encoding="utf-8")
        text = render(opened, format.value, baseline)
        if output is None and format.value == "html":
            output = Path("report.html")
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text, encoding="utf-8")
            typer.echo(f"wrote {output}", err=True)


@study_app.command()
def compare(
    store: StoreOption = DEFAULT_STORE,
    baseline: BaselineOption = None,
    paper_rule: Annotated[
        bool, typer.Option("--paper-rule", help="Best epoch on the test set, as in the paper.")
    ] = False,
) -> None:
    """Print the comparison with the baseline."""
    from hypersimplex.study import commands

    with _existing(store) as opened:
        commands.compare(opened, baseline, paper_rule)


@study_app.command()
def export(
    store: StoreOption = DEFAULT_STORE,
    format: Annotated[ExportFormat, typer.Option(help="json or csv.")] = ExportFormat.json,
) -> None:
    """Write one row per run and epoch to standard output."""
    from hypersimplex.study import exchange

    with _existing(store) as opened:
        write = exchange.to_json if format.value == "json" else exchange.to_csv
        sys.stdout.write(write(opened.runs()))


@study_app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(help="What `export` wrote, JSON or CSV, or .gz; - is standard input.", allow_dash=True),
    ],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Read an export into a store; what is finished there stays as it is."""
    from hypersimplex.study import exchange
    from hypersimplex.study.store import Store

    try:
        table = exchange.read_file(file)
        with Store(store) as opened:
            taken, kept = exchange.import_rows(opened, table)
    except (ValueError, RuntimeError, OSError) as error:
        raise _fail(error) from None
    typer.echo(f"{store}: {taken} runs taken over, {kept} left as they were", err=True)


@data_app.command("list")
def data_list(data_folder: FolderOption = None) -> None:
    """List the data sets and where their files are looked for."""
    from hypersimplex.study import commands

    commands.data_list(data_folder)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[list[str], typer.Argument(help="fashion-mnist, cifar-10.")],
    data_folder: FolderOption = None,
    mirror: Annotated[str | None, typer.Option(help="Another address that holds the publisher's files.")] = None,
) -> None:
    """Download data sets from their publishers, checked by hash."""
    from hypersimplex.study import commands

    try:
        commands.data_fetch(name, data_folder, mirror)
    except (ValueError, OSError) as error:
        raise _fail(error) from None


@data_app.command("check")
def data_check(
    name: Annotated[list[str] | None, typer.Argument(help="fashion-mnist, cifar-10; default: both.")] = None,
    data_folder: FolderOption = None,
) -> None:
    """Compare the files with the publishers' hashes."""
    from hypersimplex.study import commands

    try:
        good = commands.data_check(name or [], data_folder)
    except ValueError as error:
        raise _fail(error) from None
    if not good:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
