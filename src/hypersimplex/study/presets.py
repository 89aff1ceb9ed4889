"""Studies by name."""

from hypersimplex.study import published
from hypersimplex.study.sweep import Study

ALL = (
    "cross-entropy",
    "hinge",
    "mse",
    "hypersimplex",
    "hypersimplex-argmax",
    "hypersimplex-half",
    "hypersimplex-half-argmax",
)

PRESETS: dict[str, Study] = {
    # Minutes, on data that comes with scikit-learn: every loss tuned alike, the largest batch the whole training set.
    "demo": Study(
        dataset=("digits",),
        loss=("cross-entropy", "hinge", "mse", "hypersimplex", "hypersimplex-argmax"),
        batch_size=(64, 256, 1296),
        lr=(1e-3, 3e-3, 1e-2),
        tuning_seed=(7,),
        network="mlp",
        width=64,
        epochs=30,
        validation=0.1,
    ),
    # Two to four hours on two cores (`--processes 2 --threads 1 --channels-last`), on the paper's data: a narrow network,
    # a part of the images, every loss tuned alike, the largest batch the whole training set. `--dry-run` says what it
    # takes here.
    "laptop": Study(
        dataset=("fashion-mnist", "cifar-10"),
        loss=ALL,
        batch_size=(64, 512, 4096),
        lr=(1e-3, 3e-3, 1e-2),
        tuning_seed=(7,),
        network="paper",
        width=8,
        subset=5120,
        validation=0.2,
        epochs=20,
        schedule="cosine",
        augment=True,
    ),
    # The paper's 280 runs, exactly its protocol: no validation split, best epoch on the test set (and labelled so).
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
    ),
}
