"""A study: lists of data sets, losses, batch sizes, seeds and settings, and the runs they span."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from hypersimplex_study.config import TREES, RunConfig, is_a, is_own, kinds_of, one_of, question, trained
from hypersimplex_study.engines import Engine, OnEpoch
from hypersimplex_study.measures import METRICS
from hypersimplex_study.own_losses import check_code, code_of
from hypersimplex_study.results import result
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.setup import check
from hypersimplex_study.stats import choose_settings
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETTINGS = ("lr", "tau", "bias_rate", "smoothing")
LISTS = ("dataset", "loss", "batch_size", "seed", *SETTINGS, "tuning_seed")


@dataclass(frozen=True)
class Study:
    """The grid. With several learning rates or taus, each loss gets all of them, and its validation split chooses."""

    dataset: tuple[str, ...] = ("digits",)
    loss: tuple[str, ...] = ("cross-entropy", "hinge", "mse", "hypersimplex")
    batch_size: tuple[int, ...] = (128,)
    seed: tuple[int, ...] = (0, 42, 1337, 2025, 31415)
    lr: tuple[float, ...] = (1e-3,)
    tau: tuple[float, ...] = (1.5,)
    bias_rate: tuple[float, ...] = (1.0,)
    smoothing: tuple[float, ...] = (0.0,)
    # Seeds that only choose between settings; the compared seeds then run the chosen setting alone.
    tuning_seed: tuple[int, ...] = ()
    prior: float | None = None
    label: str | None = None
    drop: tuple[str, ...] = ()
    resize: int | None = None
    subset: int | None = None
    validation: float = 0.1
    network: str = "mlp"
    width: int = 64
    epochs: int = 20
    optimizer: str = "adam"
    schedule: str = "constant"
    momentum: float = 0.9
    weight_decay: float = 0.0
    flips: bool = False
    augment: bool = False
    precision: str = "float32"
    evaluation: str = "offsets"
    min_steps: int | None = None
    tuning_epochs: int | None = None  # of the tuning runs; None: as many as of the compared ones
    # How many of the seeds the losses run that are neither the baseline nor the primary one; None: all.
    secondary_seeds: int | None = None
    metric: str | None = None  # what settings and epochs are chosen by; None: accuracy, of boosted trees AUC
    # The training samples of data sets whose batch sizes are cut to them: those of a preset, which knows no data.
    samples: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in LISTS:
            values = tuple(dict.fromkeys(getattr(self, name)))
            if not values and name != "tuning_seed":
                raise ValueError(f"{name} must have at least one value, got none")
            object.__setattr__(self, name, values)
        if self.several_settings and self.validation == 0:
            raise ValueError("validation must be above 0 where settings are to be chosen, got 0")
        # A loss that uses neither must not hide a slip.
        if self.prior is not None and not 0 < self.prior < 1:
            raise ValueError(f"prior must be between 0 and 1, got {self.prior}")
        if not min(self.tau) > 0:
            raise ValueError(f"tau must be positive, got {min(self.tau)}")
        for name in ("tuning_epochs", "secondary_seeds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.metric is not None:
            object.__setattr__(self, "metric", self.metric.replace("-", "_"))
            one_of("metric", self.metric, METRICS)
        if self.metric == "log_loss" and self.validation == 0:
            raise ValueError("validation must be above 0 with metric log-loss, which it calibrates, got 0")
        both = set(self.seed) & set(self.tuning_seed)
        if both and self.tunes:
            raise ValueError(f"tuning_seed must differ from the compared seeds, got {min(both)} in both")

    @property
    def several_settings(self) -> bool:
        return any(len(getattr(self, name)) > 1 for name in SETTINGS)

    @property
    def tunes(self) -> bool:
        return bool(self.tuning_seed) and self.several_settings

    def grid(self, seeds: Iterable[int]) -> list[RunConfig]:
        """All runs for these seeds, seed by seed, so that a study cut short has whole repetitions."""
        single = [f.name for f in fields(RunConfig) if hasattr(self, f.name) and f.name not in LISTS]
        shared = {name: getattr(self, name) for name in single}
        # Of one's own losses: read once, though every run of theirs has it.
        codes = {loss: code_of(loss) for loss in self.loss if is_own(loss)}
        found = {}
        settings = [
            dict(zip(SETTINGS, values, strict=True)) for values in product(*(getattr(self, n) for n in SETTINGS))
        ]
        places = product(seeds, self.dataset, self.batch_size, self.loss)
        for (seed, dataset, batch, loss), setting in product(places, settings):
            batch, shared["code"] = min(batch, self.samples.get(dataset, batch)), codes.get(loss)
            run = RunConfig(dataset=dataset, loss=loss, batch_size=batch, seed=seed, **setting, **shared)
            found[run.key()] = run
        return list(found.values())

    @property
    def compared_pair(self) -> list[str]:
        """The variants of the two trainings that the primary question is about: all seeds are theirs."""
        wanted = {trained(loss) for loss in question(self.loss, self.network in TREES) if loss}
        return [loss for loss in self.loss if trained(loss) in wanted]

    def tuning(self) -> list[RunConfig]:
        """The runs that only choose settings."""
        runs = self.grid(self.tuning_seed) if self.tunes else []
        epochs = self.tuning_epochs
        if epochs is None or epochs >= self.epochs:
            return runs
        return [replace(c, epochs=epochs, tunes_for=self.epochs) for c in runs]

    def compared(self) -> list[RunConfig]:
        """The compared runs at every setting."""
        if self.secondary_seeds is None:
            return self.grid(self.seed)
        few = set(self.seed[: self.secondary_seeds])
        return [c for c in self.grid(self.seed) if c.seed in few or c.loss in self.compared_pair]

    def at_one_setting(self) -> list[RunConfig]:
        """The compared runs as if the first setting had been chosen: as many as there will be, at the same cost."""
        first = {name: getattr(self, name)[:1] for name in SETTINGS}
        return (replace(self, **first) if self.tunes else self).compared()

    def first(self) -> list[RunConfig]:
        """The runs that need no choice: the tuning runs where the study tunes, all runs otherwise."""
        return self.tuning() if self.tunes else self.compared()

    def second(self, store: Store) -> list[RunConfig]:
        """The compared runs of a study that tunes, each at the setting chosen for its loss and batch size."""
        if not self.tunes:
            return []
        wanted = {c.key() for c in self.first()}
        known, compared = store.runs(self.metric), self.compared()
        tuned = [r for r in known if r.key in wanted and r.state in FINISHED]
        entered = {r.key for r in known if not r.tuning}
        begun = {(c.dataset, c.loss, c.batch_size, c.setting()) for c in compared if c.key() in entered}
        chosen = choose_settings((replace(result(r, r.config.dataset), tuning=True) for r in tuned), begun)
        return [c for c in compared if chosen.get((c.dataset, c.loss, c.batch_size)) == c.setting()]


def trainings(runs: Iterable[RunConfig]) -> list[RunConfig]:
    """Return what has to be trained for these runs, each once."""
    return list({t.key(): t for t in (c.training() for c in runs)}.values())


def run_study(
    study: Study,
    store: Store,
    engine: Engine,
    runtime: Runtime,
    on_phase: Callable[[str, int], None],
    on_epoch: OnEpoch,
    command: str | None = None,
) -> None:
    """Run what is missing: first the tuning runs, then the compared ones.

    What no run could begin with is an error before any is entered.
    """
    for name in ("tuning", "runs") if study.tunes else ("runs",):
        tuning = name == "tuning"
        configs = study.second(store) if study.tunes and not tuning else study.first()
        if engine.local:
            check(trainings(configs), runtime, store)
        if command is not None:
            store.add_command(command)
            command = None
        check_code(store, configs)
        store.add_runs(configs, tuning=tuning)
        missing = pending(store, trainings(configs))
        on_phase(name, sum(c.epochs for c in missing))
        if missing:
            engine.run(store, missing, runtime, on_epoch)


def pending(store: Store, configs: Sequence[RunConfig]) -> list[RunConfig]:
    return [c for c in configs if store.state(c.key()) not in FINISHED]


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error


def override(base: Study, values: Mapping[str, Any], where: str = "options") -> Study:
    """Replace fields; a single value stands for a list of one. Values that are None or empty change nothing."""
    kinds = {name: kind for name, kind in kinds_of(Study).items() if name != "samples"}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f"{where}: {name} is not a field of a study; the fields are {', '.join(kinds)}")
        if value is None or value == [] or value == ():
            continue
        if isinstance(getattr(base, name), tuple):
            items = value if isinstance(value, list | tuple) else (value,)
            changes[name] = tuple(_convert(where, name, v, kinds[name]) for v in items)
        else:
            changes[name] = _convert(where, name, value, kinds[name])
    return replace(base, **changes)


def _convert(where: str, name: str, value: Any, kind: type) -> object:
    if not is_a(value, kind):
        raise ValueError(f"{where}: {name} must be of type {kind.__name__}, got {value!r}")
    return float(value) if kind is float else value
