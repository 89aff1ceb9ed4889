"""The options of `hypersimplex study run`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hypersimplex.cli.shared import DEFAULT_STORE, FolderOption, QuietOption, StoreOption

Options = TypeVar("Options")


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


class Metric(str, Enum):
    accuracy = "accuracy"
    balanced_accuracy = "balanced-accuracy"
    f1 = "f1"
    auc = "auc"
    log_loss = "log-loss"


MetricOption = Annotated[
    Metric | None,
    typer.Option(
        metavar="NAME",
        help="What runs are chosen and compared by: accuracy, balanced-accuracy, f1, auc or log-loss; "
        "default accuracy, of boosted trees auc.",
    ),
]


def measure(metric: Metric | None) -> str | None:
    """The measure that a metric is called in a store."""
    return None if metric is None else metric.value.replace("-", "_")


def taking(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function of one dataclass: its fields are the options."""

    def wrap(function: Callable[[Options], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(kind(**given))

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(f.name, keyword, default=f.default, annotation=f.type)
            for f in fields(kind)  # type: ignore[arg-type]
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        return command

    return wrap


@dataclass(frozen=True)
class RunOptions:
    preset: Annotated[
        Preset | None,
        typer.Option(
            metavar="NAME",
            help="Study to start from: demo, laptop, paper, laptop-tabular, paper-tabular. Every option overrides a "
            "part of it; the defaults shown here are those without one.",
        ),
    ] = None
    config: Annotated[Path | None, typer.Option(help="TOML file with the same fields.", dir_okay=False)] = None
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A name in `hypersimplex data list`, a CSV or Parquet file, an image folder, module:function; "
            "default digits.",
        ),
    ] = None
    label: Annotated[str | None, typer.Option(help="Label column of a CSV or Parquet file.")] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of the file to leave out, an ID say. Repeatable; default none."),
    ] = None
    resize: Annotated[
        int | None, typer.Option(metavar="INT", help="Make the images of a folder this many pixels wide and high.")
    ] = None
    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="One of those above. Repeatable; default cross-entropy, hinge, mse, hypersimplex."
        ),
    ] = None
    metric: MetricOption = None
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INT", help="At most the training samples; a preset's are cut to them. Repeatable; default 128."
        ),
    ] = None
    seed: Annotated[
        list[int] | None, typer.Option(metavar="INT", help="Repeatable; default 0, 42, 1337, 2025, 31415.")
    ] = None
    epochs: Annotated[int | None, typer.Option(help="Of boosted trees: ten rounds each; default 20.")] = None
    lr: Annotated[
        list[float] | None,
        typer.Option(metavar="FLOAT", help="Learning rate; the validation split chooses among several; default 0.001."),
    ] = None
    tau: Annotated[
        list[float] | None,
        typer.Option(metavar="FLOAT", help="Temperature of HyperSimplex; chosen like lr; default 1.5, the paper's."),
    ] = None
    tuning_seed: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INT",
            help="Seed that only chooses lr and tau; the others then run the chosen ones alone; default none.",
        ),
    ] = None
    prior: Annotated[
        float | None, typer.Option(help="k of `hypersimplex` as a share of the batch; default: the labels'.")
    ] = None
    network: Annotated[
        str | None, typer.Option(help="mlp, cnn or paper; boosted trees: lightgbm, lightgbm-paper; default mlp.")
    ] = None
    width: Annotated[
        int | None, typer.Option(help="Width of the network, leaves of a boosted tree; default 64, the paper's.")
    ] = None
    optimizer: Annotated[str | None, typer.Option(help="adam or sgd; default adam.")] = None
    schedule: Annotated[
        str | None,
        typer.Option(help="constant, linear (lr x batch / 128), cosine or warmup (then cosine); default constant."),
    ] = None
    subset: Annotated[
        int | None, typer.Option(help="Use this many training samples; of boosted trees: at most; default all.")
    ] = None
    validation: Annotated[
        float | None, typer.Option(help="Part of the training samples held out for every choice; default 0.1.")
    ] = None
    augment: Annotated[bool | None, typer.Option(help="Random crops and flips; default no.")] = None
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16; default float32.")] = None
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="BatchNorm statistics and thresholds: recomputed over training samples before every evaluation, or "
            "the running ones of training; default recomputed."
        ),
    ] = None
    min_steps: Annotated[
        int | None,
        typer.Option(help="Steps that a training has at least: an epoch is then several passes; default none."),
    ] = None
    tuning_epochs: Annotated[int | None, typer.Option(help="Epochs of the tuning runs; default: all.")] = None
    secondary_seeds: Annotated[
        int | None,
        typer.Option(help="How many seeds the losses beside hypersimplex and the baseline run; default: all."),
    ] = None
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu"
    threads: Annotated[int | None, typer.Option(metavar="INT", help="Threads per process; default torch's.", min=1)] = (
        None
    )
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Memory format of images.")] = False
    compile: Annotated[bool, typer.Option("--compile", help="torch.compile the network.")] = False
    engine: Annotated[
        EngineName | None,
        typer.Option(metavar="NAME", help="This process, several local processes, or a ray cluster; default process."),
    ] = None
    processes: Annotated[
        int | None, typer.Option(metavar="INT", help="How many local processes; implies --engine processes.", min=1)
    ] = None
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; default: a local one is started.")
    ] = None
    retries: Annotated[int, typer.Option(metavar="INT", help="How often a worker may die.", min=0)] = 3
    resume: Annotated[
        bool, typer.Option(help="Go on from checkpoints, or drop them and start unfinished runs again.")
    ] = True
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the grid and an estimate of the time; run nothing.")
    ] = False
    quiet: QuietOption = False
    data_folder: FolderOption = None
    store: StoreOption = DEFAULT_STORE
