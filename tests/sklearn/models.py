"""Small models for the tests of the classifiers."""

import numpy as np

from hypersimplex import sklearn

NAMES = np.array(["ash", "birch", "cedar", "damson"])


def lgbm(**settings):
    return sklearn.HyperSimplexLGBMClassifier(**{"n_estimators": 30, "n_jobs": 1, "random_state": 0, **settings})


def xgb(**settings):
    return sklearn.HyperSimplexXGBClassifier(**{"n_estimators": 20, "n_jobs": 1, "random_state": 0, **settings})


def mlp(**settings):
    options = {"hidden_layer_sizes": (16,), "learning_rate": 0.01, "max_iter": 40, "random_state": 0, **settings}
    return sklearn.HyperSimplexMLPClassifier(**options)
