"""A multi-layer perceptron in PyTorch, trained with the HyperSimplex loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets, unique_labels
from sklearn.utils.validation import column_or_1d

from hypersimplex.sklearn._base import ThresholdClassifier
from hypersimplex.sklearn._calibration import Array
from hypersimplex.sklearn._training import Training


class HyperSimplexMLPClassifier(ThresholdClassifier):
    """Fit a perceptron whose scores, projected over every mini-batch, come close to the labels.

    The optimizer is Adam. Features should have similar scales, so put a StandardScaler before it. Sparse matrices are
    made dense batch by batch. For several labels per row, y has shape (n, labels) and holds 0 and 1.

    Args:
        hidden_layer_sizes: a list of the widths of the hidden layers, or the width of a single one.
        tau: temperature of the projection.
        prior: expected share of the positive class, or of every class, in a batch. Default: the labels' own.
        activation: "relu", "tanh" or "gelu".
        alpha: weight decay.
        batch_size: rows per mini-batch, at least 2; "auto" is 200, or all rows if there are fewer.
        learning_rate: learning rate of Adam.
        max_iter: the largest number of epochs.
        tol, n_iter_no_change: stop when the loss has not improved by tol for that many epochs.
        class_weight: "balanced", or a weight per class, which multiplies the weights of its rows.
        early_stopping: hold out validation_fraction of the rows, judge by their loss, and keep the best epoch.
        warm_start: fit continues from the network it has, for max_iter more epochs.
        calibration: None, "sigmoid" (Platt) or "isotonic": how predict_proba is calibrated. It uses calibration_folds
            held-out folds, and each costs one more training.
        device: where PyTorch computes.
        random_state, verbose: as usual; verbose=n prints a line every n epochs.

    Attributes:
        classes_: the classes, in the order of their columns.
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns of X, if it is a frame.
        threshold_: the threshold of every class, or of the second if there are two. After `fit` it is that of all
            training rows, after `partial_fit` an average over about the last 1,000 rows. It is inf for a class that
            has none yet.
        tau_: the tau of the latest training.
        loss_curve_: the loss of every epoch; with early_stopping also validation_loss_curve_.
        n_iter_: the number of epochs trained.

    >>> X, y = np.linspace(-1, 1, 80).reshape(-1, 1), np.repeat(["low", "high"], 40)
    >>> model = HyperSimplexMLPClassifier((8,), learning_rate=0.01, random_state=0).fit(X, y)
    >>> model.predict([[-0.8], [0.9]]).tolist()
    ['low', 'high']
    """

    _training: Training  # after the first call of fit or partial_fit

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (100,),
        *,
        tau: float = 1.0,
        prior: Any = None,
        activation: str = "relu",
        alpha: float = 0.0001,
        batch_size: int | str = "auto",
        learning_rate: float = 0.001,
        max_iter: int = 200,
        tol: float = 1e-5,
        n_iter_no_change: int = 10,
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        calibration: str | None = None,
        calibration_folds: int = 5,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "HyperSimplexMLPClassifier":  # noqa: N803
        """Train on rows X and labels y. A row of weight w counts as w rows of its batch."""
        x, y, weights = self._read(X, y, sample_weight, self.warm_start and hasattr(self, "_training"))
        self._check_calibration(y)
        self._learn(x, y, weights)
        if self.calibration is not None:
            self._calibrate(x, y, weights)
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> "HyperSimplexMLPClassifier":
        """Train one epoch on more rows. The first call must name all classes, unless y holds them all.

        A class can be predicted after a call with rows of it and rows of other classes. Only `fit` calibrates
        probabilities.
        """
        if isinstance(self.class_weight, str):
            raise ValueError(f"class_weight must be None or weights for partial_fit, got {self.class_weight!r}")
        first = not hasattr(self, "_training")
        x, y = self._check(X, y, reset=first)
        check_classification_targets(y)
        if first:
            self._multilabel = y.ndim == 2
            self.classes_ = unique_labels(y if classes is None else classes)
            if len(self.classes_) < 2 and not self._multilabel:
                raise ValueError(f"classes must hold at least 2 classes, got {self.classes_.tolist()}")
        else:
            _check_partial_fit_first_call(self, classes)
        weights = self._weights(x, y, sample_weight)
        y = self._indices(y, "of the first call")
        self._training = self._start(x) if first else self._training.go_on()
        self.__dict__.pop("calibrator_", None)  # it knew another network
        self._training.epoch(x, y, weights)
        self.threshold_, self.tau_ = self._training.follow(x, y, weights), self.tau
        self._note()
        return self

    def _learn(self, x: Any, y: Array, weights: Any) -> None:
        held = None
        if self.early_stopping:
            (x, y, weights), held = self._hold_out(x, y, weights)
        again = self.warm_start and hasattr(self, "_training")
        self._training = self._training.go_on() if again else self._start(x)
        self._training.run(x, y, weights, held)
        self.threshold_, self.tau_ = self._training.settle(x, y, weights), self.tau
        self._note()

    def _start(self, x: Any) -> Training:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        columns = 1 if len(self.classes_) == 2 and not self._multilabel else len(self.classes_)
        return Training(self, x.shape[1], columns, x.dtype, seed)

    def _note(self) -> None:
        self.loss_curve_ = self._training.losses
        self.n_iter_ = len(self.loss_curve_)
        self.__dict__.pop("validation_loss_curve_", None)
        if self.early_stopping:
            self.validation_loss_curve_ = self._training.held_losses

    def _raw(self, x: Any) -> Array:
        return self._training.raw(x)

    def _check(self, X: Any, *y: Any, reset: bool) -> Any:  # noqa: N803
        checked = self._validate(
            X,
            *y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            **({"multi_output": True} if y else {}),
        )
        if not y:
            return checked
        x, labels = checked
        labels = labels.toarray() if sparse.issparse(labels) else labels
        return x, column_or_1d(labels, warn=True) if labels.shape[1:] == (1,) else labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
