"""The options of `hypersimplex study run`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hypersimplex_study.cli.shared import DEFAULT_STORE, FolderOption, QuietOption, StoreOption

Options = TypeVar("Options")


class Preset(str, Enum):
    demo = "demo"
    laptop = "laptop"
    laptop_pair = "laptop-pair"
    speedrun = "speedrun"
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
        help="Metric that chooses and compares runs: accuracy, balanced-accuracy, f1, auc or log-loss; "
        "default accuracy, for boosted trees auc.",
    ),
]


def taking(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function of one dataclass: its fields are the options."""

    def wrap(function: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            function(kind(**given))

        command.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
        command.__annotations__ = kind.__annotations__
        return command

    return wrap


def many(metavar: str, help: str, default: str) -> Any:
    """An option that may be given several times."""
    return typer.Option(metavar=metavar, help=f"{help} Repeatable; default {default}.")


@dataclass(frozen=True)
class RunOptions:
    preset: Annotated[
        Preset | None,
        typer.Option(
            metavar="NAME",
            help="Study to start from: demo, laptop, laptop-pair, speedrun, paper, laptop-tabular, paper-tabular. The "
            "other options override parts of it. The defaults shown here apply without a preset.",
        ),
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="The speedrun at airbench's width, for a device; prints its cost first.")
    ] = False
    config: Annotated[Path | None, typer.Option(help="TOML file with these options.", dir_okay=False)] = None
    dataset: Annotated[
        list[str] | None,
        many(
            "TEXT",
            "A name from `hypersimplex data list`, a CSV or Parquet file, an image folder, or module:function.",
            "digits",
        ),
    ] = None
    label: Annotated[str | None, typer.Option(help="Label column of a CSV or Parquet file.")] = None
    drop: Annotated[
        list[str] | None,
        many("COLUMN", "Column of the file to leave out, such as an ID.", "none"),
    ] = None
    resize: Annotated[
        int | None,
        typer.Option(metavar="INT", help="Resize the images of a folder to this width and height in pixels."),
    ] = None
    loss: Annotated[
        list[str] | None,
        many(
            "NAME",
            "A loss from the lists above, or module:function.",
            "cross-entropy, hinge, mse, hypersimplex; for boosted trees binary, hypersimplex",
        ),
    ] = None
    metric: MetricOption = None
    batch_size: Annotated[
        list[int] | None,
        many("INT", "Batch size, at most the number of training samples. A preset's are reduced to that.", "128"),
    ] = None
    seed: Annotated[list[int] | None, many("INT", "Random seed.", "0, 42, 1337, 2025, 31415")] = None
    epochs: Annotated[
        int | None, typer.Option(help="Epochs per run. For boosted trees one epoch is ten rounds; default 20.")
    ] = None
    lr: Annotated[
        list[float] | None,
        many("FLOAT", "Learning rate. If there are several, the validation split chooses.", "0.001"),
    ] = None
    tau: Annotated[
        list[float] | None,
        many(
            "FLOAT",
            "Temperature of HyperSimplex. If there are several, the validation split chooses.",
            "1.5, the paper's",
        ),
    ] = None
    bias_rate: Annotated[
        list[float] | None,
        many("FLOAT", "Times the learning rate, that of BatchNorm's biases; sgd and nesterov only.", "1.0"),
    ] = None
    smoothing: Annotated[
        list[float] | None,
        many("FLOAT", "Part of every label that cross-entropy spreads over all classes.", "0.0"),
    ] = None
    tuning_seed: Annotated[
        list[int] | None,
        many("INT", "Seed used only to choose lr and tau. The other seeds then run only the chosen values.", "none"),
    ] = None
    prior: Annotated[
        float | None, typer.Option(help="k of `hypersimplex` as a share of the batch; default: the labels' share.")
    ] = None
    network: Annotated[
        str | None,
        typer.Option(help="mlp, cnn, paper or speedrun. For boosted trees: lightgbm or lightgbm-paper; default mlp."),
    ] = None
    width: Annotated[
        int | None, typer.Option(help="Width of the network, or leaves per boosted tree; default 64, the paper's.")
    ] = None
    optimizer: Annotated[str | None, typer.Option(help="adam, sgd or nesterov; default adam.")] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Learning rate schedule: constant, linear (lr x batch / 128), cosine, warmup followed by cosine, or "
            "triangular; default constant."
        ),
    ] = None
    subset: Annotated[
        int | None, typer.Option(help="Use only this many training samples. For boosted trees: at most; default all.")
    ] = None
    validation: Annotated[
        float | None, typer.Option(help="Share of the training samples held out for every choice; default 0.1.")
    ] = None
    augment: Annotated[bool | None, typer.Option(help="Random crops and flips; default no.")] = None
    flips: Annotated[
        bool | None, typer.Option(help="Decide by the mean logits of an image and its mirror image; default no.")
    ] = None
    weight_decay: Annotated[
        float | None, typer.Option(help="Decoupled weight decay per step; sgd and nesterov only; default none.")
    ] = None
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16; default float32.")] = None
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="Where BatchNorm statistics and thresholds come from: offsets (over training samples, before every "
            "evaluation, with offsets for the losses without thresholds), recomputed (the same without offsets) or "
            "running (as training left them); default offsets."
        ),
    ] = None
    min_steps: Annotated[
        int | None,
        typer.Option(
            help="The least number of steps per training. An epoch then passes over the data several times; "
            "default none."
        ),
    ] = None
    tuning_epochs: Annotated[int | None, typer.Option(help="Epochs of the tuning runs; default: all.")] = None
    secondary_seeds: Annotated[
        int | None,
        typer.Option(help="How many seeds to run for losses other than hypersimplex and the baseline; default: all."),
    ] = None
    device: Annotated[str, typer.Option(help="Device, such as cpu, cuda, cuda:1 or mps.")] = "cpu"
    threads: Annotated[
        int | None, typer.Option(metavar="INT", help="Threads per process; default torch's choice.", min=1)
    ] = None
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Keep images in channels-last memory format.")
    ] = False
    compile: Annotated[bool, typer.Option("--compile", help="Compile the network with torch.compile.")] = False
    engine: Annotated[
        EngineName | None,
        typer.Option(
            metavar="NAME",
            help="Where to run: process (this one), processes (several, on this machine) or ray (a cluster); "
            "default process.",
        ),
    ] = None
    processes: Annotated[
        int | None, typer.Option(metavar="INT", help="Number of local processes. Implies --engine processes.", min=1)
    ] = None
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster; default: start a local one.")] = None
    retries: Annotated[int, typer.Option(metavar="INT", help="How often to replace a worker that dies.", min=0)] = 3
    resume: Annotated[
        bool, typer.Option(help="Resume unfinished runs from their checkpoints, or start them again.")
    ] = True
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the grid and an estimate of the time, and run nothing.")
    ] = False
    quiet: QuietOption = False
    data_folder: FolderOption = None
    store: StoreOption = DEFAULT_STORE
