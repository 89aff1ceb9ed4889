"""The paper's image results as data: best test accuracy, mean of five seeds, and its t statistics."""

from dataclasses import dataclass

from hypersimplex_study.stats import holm, p_of_t

BATCH_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)
SEEDS = (0, 42, 1337, 2025, 31415)

MEANS: dict[str, dict[str, tuple[float, ...]]] = {
    "cifar-10": {
        "cross-entropy": (0.8885, 0.8843, 0.8807, 0.8776, 0.8725, 0.8659, 0.8541),
        "hypersimplex-half-argmax": (0.8917, 0.8874, 0.8857, 0.8821, 0.8791, 0.8750, 0.8648),
        "mse": (0.8884, 0.8841, 0.8802, 0.8780, 0.8746, 0.8653, 0.8515),
        "hinge": (0.8831, 0.8785, 0.8741, 0.8694, 0.8666, 0.8590, 0.8458),
    },
    "fashion-mnist": {
        "cross-entropy": (0.9456, 0.9434, 0.9436, 0.9413, 0.9388, 0.9371, 0.9338),
        "hypersimplex-half-argmax": (0.9467, 0.9473, 0.9469, 0.9453, 0.9446, 0.9439, 0.9415),
        "mse": (0.9458, 0.9447, 0.9440, 0.9423, 0.9405, 0.9378, 0.9348),
        "hinge": (0.9452, 0.9440, 0.9437, 0.9423, 0.9407, 0.9380, 0.9346),
    },
}

# HyperSimplex against cross-entropy.
T_STATISTICS = {
    "cifar-10": (2.29, 3.47, 6.08, 9.78, 7.81, 13.14, 8.52),
    "fashion-mnist": (1.31, 4.34, 5.51, 6.67, 12.97, 9.68, 14.99),
}


# Appendix A: AUC of boosted trees. The released scripts of its "cross-entropy" trained squared error.
TABULAR = {
    "higgs": (0.823, 0.846),
    "flight": (0.773, 0.778),
    "kdd10": (0.826, 0.849),
    "kdd12": (0.724, 0.729),
    "criteo": (0.774, 0.796),
    "avazu": (0.738, 0.741),
    "kkbox": (0.777, 0.797),
    "movielens": (0.827, 0.828),
}


@dataclass(frozen=True)
class PublishedCell:
    """One cell of the paper's table, with what follows from it."""

    dataset: str
    batch_size: int
    cross_entropy: float
    hypersimplex: float
    difference: float  # of the two means as printed; the paper's own may differ in the last digit
    t: float
    p: float
    holm_p: float
    effect: float


def mean(dataset: str, loss: str, batch_size: int) -> float | None:
    """Return the published mean, or None where the paper has none."""
    if batch_size == 0:
        return dict(zip(("squared-error", "hypersimplex-paper"), TABULAR.get(dataset, ()), strict=False)).get(loss)
    row = MEANS.get(dataset, {}).get(loss)
    return row[BATCH_SIZES.index(batch_size)] if row and batch_size in BATCH_SIZES else None


def table() -> list[PublishedCell]:
    """Recompute what the printed means and t statistics determine: differences, p, Holm's p, effect size."""
    n = len(SEEDS)
    cells = [(d, i) for d in MEANS for i in range(len(BATCH_SIZES))]
    p = [p_of_t(T_STATISTICS[d][i], n) for d, i in cells]
    rows = []
    for (d, i), p_value, adjusted in zip(cells, p, holm(p), strict=True):
        ce, hs, t = MEANS[d]["cross-entropy"][i], MEANS[d]["hypersimplex-half-argmax"][i], T_STATISTICS[d][i]
        rows.append(PublishedCell(d, BATCH_SIZES[i], ce, hs, round(hs - ce, 4), t, p_value, adjusted, t / n**0.5))
    return rows
