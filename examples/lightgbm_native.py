"""LightGBM with the HyperSimplex objective: train, stop early on the loss, decide at the threshold.

Run with `python examples/lightgbm_native.py`.
"""

import lightgbm as lgb
import numpy as np

from hypersimplex.boosting import HyperSimplexObjective, LightGBMMetric


def main() -> float:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 8))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=6000) > 0.5).astype(int)
    training = lgb.Dataset(x[:4000], y[:4000])
    validation = lgb.Dataset(x[4000:5000], y[4000:5000], reference=training)

    objective = HyperSimplexObjective()
    booster = lgb.train(
        {"objective": objective, "metric": "None", "verbose": -1},
        training,
        num_boost_round=300,
        valid_sets=[validation],
        feval=LightGBMMetric(objective, "loss"),
        callbacks=[lgb.early_stopping(20, verbose=False)],
    )

    # The booster predicts raw scores, of the best round; the threshold that belongs to them turns them into classes.
    objective.calibrate(y[:4000], booster.predict(x[:4000]))
    error = objective.error_rate(y[5000:], booster.predict(x[5000:]))
    print(f"{booster.best_iteration} rounds, threshold {objective.threshold[0]:.3f}, test error {error:.3f}")
    return error


if __name__ == "__main__":
    main()
