"""What must be right before the first training: an error here is one line, and no failed run for each training."""

from collections.abc import Iterable, Sequence

import torch

from hypersimplex_study import own_losses
from hypersimplex_study.batches import check_rows, split
from hypersimplex_study.config import RunConfig, is_own
from hypersimplex_study.data import load_for
from hypersimplex_study.engines import check_data
from hypersimplex_study.formats import DataError
from hypersimplex_study.models import make_network, outputs
from hypersimplex_study.samples import Data
from hypersimplex_study.schema import FINISHED
from hypersimplex_study.store import Store
from hypersimplex_study.train import Runtime


def check(configs: Iterable[RunConfig], runtime: Runtime, store: Store | None = None) -> None:
    """Load every data set, look at its sizes and make every network once.

    Of trainings that are finished in the store, the data is only compared with what they were trained on, and only
    where it is still there.
    """
    missing: set[str] = set()
    kinds: dict[tuple[object, ...], list[RunConfig]] = {}
    for c in configs:
        kind = (c.dataset, c.label, c.drop, c.resize, c.subset, c.validation, c.network, c.width)
        kinds.setdefault(kind, []).append(c)
        if store is None or store.state(c.key()) not in FINISHED:
            missing.add(c.key())
    if missing:
        check_device(runtime.device)
    for group in kinds.values():
        left = [c for c in group if c.key() in missing]
        try:
            data = load_for(group[0], runtime.data_folder)
        except DataError:
            if left:
                raise
            continue
        if store is not None:
            check_data(store, group[0], data)
        if left:
            check_sizes(left, data, runtime.device)


def check_sizes(group: Sequence[RunConfig], data: Data, device: str) -> None:
    """Look at what trainings that differ in nothing but their batch size, loss and seed make of a data set."""
    first = group[0]
    if first.is_trees:
        from hypersimplex_study.boosted import check_classes, usable

        check_classes(data)
        usable(data, first.subset, first.validation)
    else:
        check_network(first, data, device)
        train, held = split(data, first.subset, first.validation)
        for c in {c.loss: c for c in group if is_own(c.loss)}.values():
            own_losses.check(c, len(data.classes))
        check_batches([c.batch_size for c in group], len(train), len(held), first.dataset)


def check_device(name: str) -> None:
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device must be one that torch can use here, got {name!r} ({reason})") from error


def check_network(config: RunConfig, data: Data, device: str) -> None:
    check_rows(data)
    network = make_network(config.network, config.width, data)
    if data.model is None:
        return
    found, wanted = outputs(network, data, device), len(data.classes)
    if found != wanted:
        raise ValueError(f"{data.name}: the network must give {wanted} outputs, got {found}")


def check_batches(sizes: Sequence[int], train: int, held: int, dataset: str) -> None:
    """Batches above the training set are all the same training; only one size may stand for all samples."""
    whole = {s for s in sizes if s >= train}
    if max(sizes) > train and (len(whole) > 1 or max(sizes) > train + held):
        raise ValueError(
            f"batch_size must be at most {train} (the training samples of {dataset}), got {max(sizes)}; "
            "name others with --batch-size"
        )
