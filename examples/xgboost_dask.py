"""XGBoost on a Dask cluster: the projection spans the rows of every worker, as if they lay on one machine.

Run with `python examples/xgboost_dask.py`; it starts a cluster of two local workers.
"""

import dask.array as da
import numpy as np
import xgboost as xgb
from distributed import Client, LocalCluster
from xgboost import dask as dxgb

from hypersimplex.boosting import HyperSimplexObjective


def main() -> float:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 8))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=6000) > 0.5).astype(int)
    parts = (3000, 500, 1500)  # uneven, as real partitions are
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        rows, labels = da.from_array(x[:5000], chunks=(parts, 8)), da.from_array(y[:5000], chunks=(parts,))
        training = dxgb.DaskDMatrix(client, rows, labels)
        settings = {"tree_method": "hist", "max_depth": 4}
        booster = dxgb.train(client, settings, training, 60, obj=HyperSimplexObjective())["booster"]
        scores = dxgb.predict(client, booster, training, output_margin=True).compute()

    # The workers trained with copies of the objective. This one learns its threshold from the training scores.
    objective = HyperSimplexObjective().calibrate(y[:5000], scores)
    error = objective.error_rate(y[5000:], booster.predict(xgb.DMatrix(x[5000:]), output_margin=True))
    print(f"threshold {objective.threshold[0]:.3f}, test error {error:.3f}")
    return error


if __name__ == "__main__":
    main()
