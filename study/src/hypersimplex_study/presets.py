"""Studies by name."""

from dataclasses import replace

from hypersimplex_study import published
from hypersimplex_study.config import TREE_LOSSES
from hypersimplex_study.sweep import Study

# Ten, so that differences of one standard deviation of their own are found; the first five are the paper's.
SEEDS = (*published.SEEDS, 1, 2, 3, 4, 5)

PRESETS: dict[str, Study] = {
    # Minutes, on data that comes with scikit-learn: every loss tuned alike, the largest batch the whole training set.
    "demo": Study(
        dataset=("digits",),
        loss=("cross-entropy", "label-smoothing", "mse", "hypersimplex", "hypersimplex-argmax"),
        batch_size=(64, 256, 1151),
        seed=SEEDS,
        lr=(1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
        tuning_seed=(7,),
        tuning_epochs=10,
        secondary_seeds=3,
        network="mlp",
        width=64,
        epochs=30,
        validation=0.2,
    ),
    # Some nine hours on two cores (`--processes 2 --threads 1 --channels-last`), in pieces that resume, on the paper's
    # data: a narrow network, a part of the images, every loss tuned alike, the largest batch the whole training set of
    # 10,240. Every batch size divides it: a handful of images left over at the end of an epoch would be a batch of
    # their own.
    "laptop": Study(
        dataset=("fashion-mnist", "cifar-10"),
        loss=(
            "cross-entropy",
            "label-smoothing",
            "squentropy",
            "mse",
            "hypersimplex",
            "hypersimplex-argmax",
            "hypersimplex-half",
            "hypersimplex-half-argmax",
        ),
        batch_size=(256, 2048, 10_240),
        seed=SEEDS,
        lr=(1e-3, 3e-3, 1e-2, 3e-2),
        tuning_seed=(7,),
        tuning_epochs=6,
        secondary_seeds=3,
        network="paper",
        width=8,
        subset=12_800,
        validation=0.2,
        epochs=20,
        min_steps=200,
        schedule="cosine",
        augment=True,
    ),
    # CIFAR-10 in three epochs by a network in the spirit of airbench94, at a quarter of its width.
    "speedrun": Study(
        dataset=("cifar-10",),
        loss=("cross-entropy", "hypersimplex"),
        batch_size=(1000, 2500, 5000, 10_000),
        seed=tuple(range(100, 150)),
        lr=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        bias_rate=(4.0, 16.0, 64.0),
        tau=(0.75, 1.5, 3.0),
        smoothing=(0.05, 0.1, 0.2),
        tuning_seed=(7, 8),
        network="speedrun",
        width=16,
        epochs=3,
        optimizer="nesterov",
        momentum=0.85,
        weight_decay=0.0015,
        schedule="triangular",
        augment=True,
        flips=True,
    ),
    # An hour on one core: stand-ins for the paper's sets and two more, at most 30,000 rows to train and choose by.
    "laptop-tabular": Study(
        dataset=("higgs-sample", "nycflights13", "bts-flights-2001h1", "ml-latest-small", "adult", "bio-kdd04"),
        loss=TREE_LOSSES,
        lr=(0.05, 0.15),
        tuning_seed=(7,),
        network="lightgbm",
        width=31,
        subset=30_000,
        validation=0.2,
        epochs=30,
    ),
    # The paper's appendix on its eight sets, with its settings and learning rate; unlike there, the rounds are chosen
    # on a validation split, and the test set is another part of the data.
    "paper-tabular": Study(
        dataset=("higgs", "flight", "kdd10", "kdd12", "criteo", "avazu", "kkbox", "movielens"),
        loss=TREE_LOSSES,
        lr=(0.1,),
        network="lightgbm-paper",
        width=250,
        validation=0.2,
        epochs=100,
    ),
    # The paper's 280 runs, exactly its protocol: no validation split, best epoch on the test set (and labeled so).
    "paper": Study(
        dataset=("cifar-10", "fashion-mnist"),
        loss=("cross-entropy", "hinge", "mse", "hypersimplex-half-argmax"),
        batch_size=published.BATCH_SIZES,
        seed=published.SEEDS,
        lr=(1e-4,),
        tau=(1.5,),
        network="paper",
        width=64,
        validation=0.0,
        epochs=600,
        schedule="constant",
        augment=True,
        evaluation="running",
    ),
}
# The primary pair of the laptop study anew, with losses of two phases: rates a factor of 2 apart, by trainings of full
# length over two seeds.
PRESETS["laptop-pair"] = replace(
    PRESETS["laptop"],
    loss=("cross-entropy", "hypersimplex", "hypersimplex-first-quarter", "hypersimplex-first-half"),
    lr=(2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2),
    tuning_seed=(7, 8),
    tuning_epochs=None,
)


def full(study: Study) -> Study:
    """What `--full` makes of the speedrun: airbench94's width, and about its epochs."""
    return replace(study, width=64, epochs=10, batch_size=(1000, 2000, 8192))
