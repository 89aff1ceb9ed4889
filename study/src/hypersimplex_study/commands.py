"""What `hypersimplex study run` does, without the parsing of its options."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hypersimplex_study import checkpoint, estimate, setup
from hypersimplex_study.batches import split
from hypersimplex_study.comparison import Comparison
from hypersimplex_study.config import NETWORK_LOSSES, TREE_LOSSES, TREES, RunConfig, is_own
from hypersimplex_study.console import Live, Terminal, batch_text, in_words, narrow_table
from hypersimplex_study.data import load_for
from hypersimplex_study.engines import Engine, InProcess, Processes
from hypersimplex_study.formats import DataError
from hypersimplex_study.locks import is_claimed
from hypersimplex_study.own import is_entry_point
from hypersimplex_study.presets import PRESETS, full
from hypersimplex_study.records import Run
from hypersimplex_study.report import gather, place_of, render
from hypersimplex_study.sanity import logistic_regression, sentence
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.status import print_failure
from hypersimplex_study.store import Store
from hypersimplex_study.sweep import Study, override, read_toml, run_study, trainings
from hypersimplex_study.train import Runtime

# Of small data at the defaults: twenty epochs of one batch each would hardly begin to learn.
FEW_STEPS = 200

if TYPE_CHECKING:
    from hypersimplex_study.cli.options import RunOptions


def main(options: "RunOptions", line: str) -> bool:
    """Do what the command line says; return whether every run reached an end."""
    console = Terminal(quiet=options.quiet)
    runtime = Runtime(options.device, options.threads, options.channels_last, options.compile, options.data_folder)
    settings = {} if options.config is None else read_toml(options.config)
    study = make_study(options, settings)
    say_what_runs_code(console, study, options.config)
    name = options.engine.value if options.engine else None
    engine = make_engine(name, options.processes, options.address, options.retries)
    # What somebody chose for this data: in a file or by an option.
    chosen = {*settings, *(name for name, value in vars(options).items() if value not in (None, []))}
    study = fitted(console, study, runtime, chosen, options.store)
    if options.full:
        console.print(estimate.cost(study, runtime))
    if options.dry_run:
        dry_run(console, study, runtime, options.processes or 1, options.store)
        return True
    return run(console, study, options.store, engine, runtime, options.resume, line)


def make_study(options: "RunOptions", settings: Mapping[str, Any]) -> Study:
    """A preset, changed by a file's settings, changed by options; some options are no field of a study."""
    study = PRESETS[options.preset.value] if options.preset else Study()
    if options.full:
        if study is not PRESETS["speedrun"]:
            raise ValueError("full must be left out without the preset speedrun")
        study = full(study)
    given = {f.name: getattr(options, f.name) for f in fields(Study) if hasattr(options, f.name)}
    study = override(override(study, settings, str(options.config)), given)
    trees = study.network in TREES
    known, usual = (TREE_LOSSES, ("binary", "hypersimplex")) if trees else (NETWORK_LOSSES, Study().loss)
    if not given["loss"] and "loss" not in settings and not {*study.loss} <= {*known}:
        # Nobody named these losses, which only the other kind of model has.
        study = replace(study, loss=usual)
    if given["tau"] and trees:
        name = study.network
        raise ValueError(f"tau must be left out with network {name}, whose losses have their own, got {study.tau[0]}")
    study.grid(study.seed[:1])  # what a run would refuse is an error before the data is read
    return study


def fitted(console: Terminal, study: Study, runtime: Runtime, chosen: set[str], path: Path) -> Study:
    """Fit what nobody chose to the data: batches to its samples, and with few samples more passes over them."""
    samples, few = {}, False
    for dataset in study.dataset:
        sizes = sizes_of(console, study, dataset, runtime, path)
        if sizes is None:
            continue
        train, held = sizes
        whole = [b for b in study.batch_size if b >= train]
        if "batch_size" not in chosen and (len(whole) > 1 or max(study.batch_size) > train + held):
            samples[dataset] = train
            cut = ", ".join(map(str, whole))
            console.print(f"note: batch size {cut} cut to {train}, the training samples of {dataset}")
        few = few or study.epochs * math.ceil(train / max(study.batch_size)) < FEW_STEPS
    study = replace(study, samples=samples)
    if few and not chosen & {"preset", "epochs", "min_steps"}:
        console.print(f"note: few samples; every training takes at least {FEW_STEPS} steps (--min-steps)")
        study = replace(study, min_steps=FEW_STEPS)
    return study


def sizes_of(console: Terminal, study: Study, dataset: str, runtime: Runtime, path: Path) -> tuple[int, int] | None:
    """How many samples networks are trained and validated on: by the data, or where it is not here, by stored runs."""
    names = ("label", "drop", "resize", "subset", "validation")
    config = RunConfig(dataset=dataset, **{name: getattr(study, name) for name in names})
    trees = study.network in TREES
    try:
        data = load_for(config, runtime.data_folder)
    except DataError:
        return None if trees else stored_sizes(config, path)
    for note in data.notes:
        console.print(f"note: {note}", style="yellow", soft_wrap=True)
    if trees:
        return None
    train, held = split(data, study.subset, study.validation)
    return len(train), len(held)


def stored_sizes(config: RunConfig, path: Path) -> tuple[int, int] | None:
    """The same by the first of a store's runs that had these samples: a study stays what it was without its data."""

    def samples(c: RunConfig) -> tuple[object, ...]:
        return c.dataset, c.label, c.drop, c.resize, c.subset, c.validation, c.is_trees

    if not path.exists():
        return None
    with Store(path, read_only=True) as store:
        found = [r.provenance.get("samples") for r in store.runs() if samples(r.config) == samples(config)]
    return next(((s["train"], s["validation"]) for s in found if s), None)


def make_engine(name: str | None, processes: int | None, address: str | None, retries: int) -> Engine:
    for option, value, engine in (("processes", processes, "processes"), ("address", address, "ray")):
        if value is not None and name not in (None, engine):
            raise ValueError(f"{option} must be left out with engine {name}, it is of engine {engine}, got {value}")
    if name is None and processes and address:
        raise ValueError(f"processes must be left out with an address of a Ray cluster, got {processes}")
    name = name or ("processes" if processes else "ray" if address else "process")
    if name == "ray":
        from hypersimplex_study.ray_engine import RayEngine

        return RayEngine(address, retries)
    return Processes(processes or 2, retries) if name == "processes" else InProcess()


def dry_run(console: Terminal, study: Study, runtime: Runtime, processes: int, path: Path) -> None:
    todo = [("tuning", trainings(study.tuning()))] if study.tunes else []
    # Which setting is chosen is not known yet; it does not change the time.
    todo.append(("compared", trainings(study.at_one_setting())))
    everything = [c for _, configs in todo for c in configs]
    setup.check(everything, runtime)
    done: list[RunConfig] = []
    if path.exists():
        with Store(path, read_only=True) as store:
            done = [r.config.training() for r in store.runs() if r.state in FINISHED]
    finished = {c.key() for c in done}
    if study.tunes:
        compared = {_at_any_setting(c) for c in done}
        finished |= {c.key() for c in todo[-1][1] if _at_any_setting(c) in compared}
    times = estimate.seconds(everything, runtime)
    loading = [speed.loading / speed.train for _, speed in times.values()]
    trees = all(c.is_trees for c in everything)
    total = sum(cost for cost, _ in times.values())
    left = sum(cost for key, (cost, _) in times.items() if key not in finished)
    console.print("losses: " + ", ".join(study.loss))
    for table in _grid_tables(todo, {key: cost for key, (cost, _) in times.items()}):
        console.print(table)
    console.print(
        f"{len(everything)} trainings, about {in_words(total / processes)} with --processes {processes}, "
        f"{in_words(left / processes)} still to do."
        + ("" if trees else f" Loading and augmentation take at most {max(loading):.1%} of a step.")
    )
    how = "by ten rounds of each kind; most stop early" if trees else "at up to 512 samples a step"
    console.print(f"measured now, {how}; another load on this machine changes it", style="dim")


def _at_any_setting(config: RunConfig) -> RunConfig:
    return replace(config, lr=1.0, tau=None, bias_rate=1.0, smoothing=0.0)


def _grid_tables(todo: Sequence[tuple[str, list[RunConfig]]], times: Mapping[str, float]) -> list[Table]:
    """For each data set its trainings, by phase and batch size, and what they cost."""
    columns = ("", "batch", "losses", "settings", "seeds", "number", "epochs", "each", "all")
    tables: dict[str, Table] = {}
    for name, configs in todo:
        groups: dict[tuple[str, int], list[RunConfig]] = {}
        for c in configs:
            groups.setdefault((c.dataset, c.batch_size), []).append(c)
        for (dataset, batch), group in groups.items():
            cost = sum(times[c.key()] for c in group)
            kinds = (len({c.loss for c in group}), len({c.setting() for c in group}), len({c.seed for c in group}))
            each = in_words(cost / len(group))
            row = (name, batch_text(batch), *kinds, len(group), group[0].epochs, each, in_words(cost))
            table = tables.setdefault(dataset, narrow_table(f"trainings on {dataset}", columns, columns[:1]))
            table.add_row(*map(str, row))
    return list(tables.values())


def run(
    console: Terminal, study: Study, path: Path, engine: Engine, runtime: Runtime, resume: bool, command: str
) -> bool:
    """Run a study and print its table; return whether every run reached an end."""
    report = place_of(path)
    if engine.local and not path.exists():
        # Before the file is made: a slip leaves nothing behind.
        setup.check(trainings(study.first()), runtime)
    with Store(path) as store:
        if not resume:
            drop_checkpoints(store, study)
        known = len(store.events())
        with Live(console) as live:
            run_study(study, store, engine, runtime, live.phase, live.epoch, command)
        for _, _, what in store.events()[known:]:
            console.print(f"note: {what}", style="yellow", soft_wrap=True)
        wanted = {c.key() for c in [*study.first(), *study.second(store)]}
        runs = [r for r in store.runs(study.metric) if r.key in wanted]
        lines = yardsticks(study, runtime, runs) if engine.local else ()
        failed = [r for r in runs if r.state not in FINISHED]
        for r in failed[:10]:
            print_failure(console, r)
        if failed:
            console.print(f"{len(failed)} of {len(runs)} runs have no result; the same command tries them again")
        Comparison(runs).show(console, yardsticks=lines)
        if any(r.state == "done" and not r.tuning for r in runs):
            report.write_text(render(gather(store, None, study.metric), "html"), encoding="utf-8")
            console.print(f"report: {report}", soft_wrap=True)
        return not failed


def yardsticks(study: Study, runtime: Runtime, runs: Sequence[Run]) -> Iterator[str]:
    """For each data set of networks what logistic regression makes of it, where that takes seconds."""
    for dataset in () if study.network in TREES else study.dataset:
        config = next(r.config for r in runs if r.config.dataset == dataset)
        try:
            data = load_for(config, runtime.data_folder)
        except DataError:  # nothing was missing, so the data was not needed
            continue
        found = logistic_regression(data, config.subset, config.validation)
        said = found and sentence(dataset, found, runs)
        if said:
            yield said


def drop_checkpoints(store: Store, study: Study) -> None:
    mine = {c.key() for c in trainings([*study.first(), *study.compared()])}
    for r in store.runs():
        if r.training in mine and r.state not in FINISHED and not is_claimed(store.work_folder, r.training):
            checkpoint.remove(store.work_folder, r.training)


def say_what_runs_code(console: Terminal, study: Study, file: Path | None) -> None:
    """A file of settings looks harmless: where it names a function, say what that means before it runs."""
    named = [("data set", name) for name in study.dataset if is_entry_point(name)]
    named += [("loss", name) for name in study.loss if is_own(name)]
    for what, name in named if file is not None else ():
        console.print(f"note: {file} names the {what} {name}: this runs code from {Path.cwd()}", style="yellow")
