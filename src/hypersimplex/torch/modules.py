"""The operator and the loss as modules: they store their arguments and call the functions."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from hypersimplex import _checks
from hypersimplex.torch import _batch, _calibration, _tracking, decisions
from hypersimplex.torch._batch import Number, Outcome, Settings
from hypersimplex.torch._state import State, can_read, check_per_class, store
from hypersimplex.torch.functional import soft_topk
from hypersimplex.torch.loss import compute


class SoftTopK(nn.Module):
    """`soft_topk` along dim as a module. `SoftBinaryArgmax` is the same class under the paper's name.

    >>> SoftTopK(k=1)(torch.tensor([0.1, 1.6, 1.0]))
    tensor([0.0000, 0.8000, 0.2000])
    """

    k: Number
    tau: Number
    curve = "ramp"  # of modules that were saved before there were others

    def __init__(self, k: Number, tau: Number = 1.0, dim: int = -1, *, curve: str = "ramp") -> None:
        super().__init__()
        _checks.check_curve(curve)
        self.dim, self.curve = dim, curve
        store(self, k=k, tau=tau)

    def forward(self, input: Tensor) -> Tensor:
        return soft_topk(input, self.k, self.tau, self.dim, curve=self.curve)

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau}, dim={self.dim}, curve={self.curve!r}"


SoftBinaryArgmax = SoftTopK


class HyperSimplexLoss(State):
    """The HyperSimplex loss. Replace nn.CrossEntropyLoss with it, and argmax with `predict`.

    The loss does not change when a constant is added to a class's logits. So plain argmax of the logits is not the
    decision of this model. The module keeps one threshold per class, and `predict` uses them. Each training step moves
    `threshold` toward the batch's thresholds. `eval()` freezes it, and `state_dict` saves it. A class without a
    positive or without a negative sample in the batch keeps its threshold.

    Args:
        weight, ignore_index, reduction, k, prior, tau, group, label_smoothing: see `hypersimplex_loss`.
        momentum: how far a batch moves the running thresholds; 0.1 is a tenth of the way to its own. They begin as the
            plain average of all samples, and 0 keeps them so. Default: N/1000 for a batch of N samples, at least 0.1.
            Then they follow about the last 1,000 samples.
        num_classes: creates the thresholds at construction, so that checkpoints, averaged models and exports find
            them; 1 for a binary problem. Without it the first batch creates them.

    >>> criterion = HyperSimplexLoss(num_classes=2)
    >>> logits = torch.tensor([[2.1, 0.3], [1.6, 1.1], [1.0, 1.9]], requires_grad=True)
    >>> criterion(logits, torch.tensor([0, 0, 1])).detach()
    tensor(0.0167)
    >>> criterion.threshold
    tensor([0.8000, 1.0000])
    >>> criterion.predict(logits)
    tensor([0, 0, 1])
    """

    weight: Tensor | None
    k: Number | None
    prior: Number | None
    tau: Number

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        k: Number | None = None,
        prior: Number | None = None,
        tau: Number = 1.0,
        momentum: float | None = None,
        group: Any = None,
        num_classes: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(num_classes)
        if k is not None and prior is not None:
            raise _checks.both_given(k, prior)
        momentum = None if momentum is None else _batch.number("momentum", momentum)
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1 or None, got {momentum}")
        if isinstance(weight, Real):
            raise _batch.number_as_weight(weight)
        _batch.check_reduction(reduction)
        _batch.check_plain_numbers(k, prior, tau)
        self.label_smoothing = _batch.smoothing(label_smoothing)
        _batch.check_smoothing(self.label_smoothing)
        check_per_class(num_classes, weight=weight, k=k, prior=prior, tau=tau)
        self.ignore_index = _batch.whole("ignore_index", ignore_index)
        self.reduction = reduction
        self.momentum = momentum
        self.group = group
        store(self, weight=weight, k=k, prior=prior, tau=tau)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        tau = 1.0 if self._flags[1] else self.tau  # the logits of a folded layer are divided by it
        settings = Settings(
            self.weight, self.ignore_index, self.reduction, self.k, self.prior, tau, self.label_smoothing
        )
        one = self.num_classes not in (None, 1) and _is_flat(input) and _is_flat(target)
        if one:
            if self.group is None:  # else by _check_ahead, where the other ranks hear of it
                self._check_one(input)
            input, target = input.unsqueeze(0), target.unsqueeze(0)
        check = None
        if self.group is not None:
            moves = self.training and _batch.needs_gradient(input, target, *settings)
            check = partial(self._check_ahead, one, moves)
        outcome = compute(input, target, settings, self.group, check)
        self._check_classes(outcome.classes)
        if self.training and _tracking.can_track(outcome, self._buffers):
            self._refuse_if_folded()
            buffers = self._buffers_for(outcome.classes, outcome.loss)
            _tracking.track(buffers, outcome, self.momentum, 1 if input.dim() == 2 else _positions(input))
            if target.dim() == input.dim():
                self._note_multilabel(input, target, outcome)
        return outcome.loss.reshape(()) if one else outcome.loss

    def scores(self, logits: Tensor) -> Tensor:
        """Return (logit - threshold)/tau for every class. Above one half means positive.

        After folding, these are the logits themselves.
        """
        return self._scores(logits)

    def _scores(self, logits: Tensor) -> Tensor:
        if self._read_flags()[1]:
            return logits
        threshold = self._known_threshold(logits)
        return decisions.scores(logits, threshold, self._tau_of(threshold))

    def predict(self, logits: Tensor) -> Tensor:
        """Return the class of every sample. For a binary or multi-label problem return 0 or 1 for every logit.

        Before the first batch all thresholds are 0, and a warning says so once. So is the threshold of a class that
        has had none in any batch, with a warning of its own. After folding this is plain argmax.
        """
        return decisions.decide(self._scores(decisions.wide(logits)), self._independent(logits))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of every class. For a binary or multi-label problem: of every positive decision.

        The probabilities come from the scores and one factor, which `calibrate` fits to labels. The most probable
        class is the class of `predict`.
        """
        if can_read(self.sharpness) and not self.sharpness > 0:
            raise RuntimeError("probabilities are not known yet: calibrate with pairs (logits, target)")
        wide = decisions.wide(logits)
        sharpness = self.sharpness.to(wide)
        return _calibration.probabilities(self._scores(wide), sharpness, self._independent(logits)).to(logits.dtype)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Tensor | Sequence[Tensor]]) -> "HyperSimplexLoss":
        """Set the thresholds to their exact average over batches of logits, or of (logits, target).

        With targets, `probabilities` works afterwards. Without targets, k comes from `prior` or `k`, or from the share
        of positives seen in training. A class that has no threshold in any batch keeps the one it had. With a group
        every rank gives as many batches.
        """

        def begin() -> Iterable[Any]:
            self._read_flags()
            self._refuse_if_folded()
            return _calibration.check(batches)

        found: dict[str, Tensor] = {}
        samples = _calibration.Samples()
        ranks = self._ranks()
        for logits, target in _calibration.each(begin, self._read_batch, ranks):
            outcome = self._measure(logits, target)
            if not found:
                own = self._buffers_for(outcome.classes, outcome.loss)
                found = {name: torch.zeros_like(own[name]) for name in _tracking.NAMES}
            _tracking.track(found, outcome, 0.0, _positions(logits), with_share=target is not None)
            if target is not None:
                self._note_multilabel(logits, target, outcome)
                samples.add(logits, target, self.ignore_index)
        if not found:
            raise ValueError("batches must hold at least one batch of logits, got none")
        moved = found["seen"] > 0
        for name in ("threshold", "seen"):
            own[name].copy_(torch.where(moved, found[name], own[name]))
        if found["samples"].any():
            own["share"].copy_(found["share"])
            own["samples"].copy_(found["samples"])
        if samples.logits:
            logits, targets = torch.cat(samples.logits), torch.cat(samples.targets)
            scores, independent = self._scores(logits), self._independent(logits)
            total = None if ranks is None else ranks.sum
            self.sharpness.fill_(_calibration.sharpness(scores, targets, independent, total))
        return self

    def fold_into_(self, linear: nn.Module) -> nn.Module:
        """Write the thresholds and tau into the last layer. Its plain argmax is then the decision.

        Afterwards the layer puts out scores, and `predict` of this module is plain argmax. The state_dict remembers
        that. Folding again, training and calibrating raise an error.
        """
        self._read_flags()
        self._refuse_if_folded()
        self._refuse_if_lost()
        if self.threshold is None or not self._buffers["seen"].any():  # type: ignore[union-attr]
            raise RuntimeError("thresholds are not known yet: call the loss in training mode, calibrate, or load them")
        decisions.fold_(linear, self.threshold, self._tau_of(self.threshold))
        self.folded.fill_(1)
        self._read_flags()
        return linear

    def extra_repr(self) -> str:
        given = {"num_classes": self.num_classes, "k": self.k, "prior": self.prior}
        parts = [f"{name}={value}" for name, value in given.items() if value is not None]
        if self.label_smoothing:
            parts.append(f"label_smoothing={self.label_smoothing}")
        return ", ".join([f"reduction={self.reduction!r}", *parts, f"tau={self.tau}", f"momentum={self.momentum}"])

    def _check_one(self, input: Tensor) -> None:
        """Logits (C,) with probabilities (C,), which without num_classes are N samples of a binary problem."""
        if input.shape[0] != self.num_classes:
            raise ValueError(
                f"input must have shape (N, {self.num_classes}), or ({self.num_classes},) for one sample, as "
                f"num_classes says, got {tuple(input.shape)}; for a binary problem, num_classes is 1"
            )

    def _check_ahead(self, one: bool, moves: bool, input: Tensor, _: Tensor, classes: int) -> None:
        """What this module may refuse, before the ranks of a group count on it."""
        if one:
            self._check_one(input[0])
        if moves:
            self._refuse_if_folded()
            self._check_buffers()
        self._check_classes(classes)

    def _ranks(self) -> Any:
        if self.group is None:
            return None
        from hypersimplex.torch._ranks import members

        return members(self.group, self.classes)

    def _tau_of(self, threshold: Tensor) -> Tensor:
        return _batch.per_class("tau", self.tau, threshold.shape[0], threshold.device).detach()

    def _read_batch(self, batch: object) -> tuple[Tensor, Tensor | None]:
        """Logits and targets of one batch of a calibration."""
        logits, target = _calibration.pair(batch)
        if target is None and self._share() is None and self.k is None:
            raise ValueError("batches must be pairs (logits, target) unless prior or k is given, got logits alone")
        if self.num_classes not in (None, 1) and _is_flat(logits) and (target is None or _is_flat(target)):
            self._check_one(logits)
            logits, target = logits.unsqueeze(0), None if target is None else target.unsqueeze(0)
        return logits, target

    def _share(self) -> Number | None:
        """Of positives: as given, or as seen in training."""
        seen = self._buffers["samples"]
        known = self.prior is None and seen is not None and bool(seen.any())
        return self._buffers["share"] if known else self.prior

    def _measure(self, logits: Tensor, target: Tensor | None) -> Outcome:
        check = partial(self._check_ahead, False, True)
        if target is not None:
            settings = Settings(None, self.ignore_index, "sum", self.k, self.prior, self.tau, self.label_smoothing)
            return compute(logits, target, settings, self.group, check)
        # With k given, any target has the same thresholds.
        shape = logits.shape[:1] + logits.shape[2:]
        anything = torch.zeros_like(logits) if logits.dim() == 1 else logits.new_zeros(shape, dtype=torch.int64)
        prior = self._share() if self.k is None else None
        settings = Settings(None, _batch.IGNORED, "sum", self.k, prior, self.tau)
        return compute(logits, anything, settings, self.group, check)

    def _note_multilabel(self, logits: Tensor, target: Tensor, outcome: Outcome) -> None:
        found = outcome.multilabel  # with a group: that of all ranks
        if found is None and logits.dim() > 1 and target.shape == logits.shape:
            found = decisions.is_multilabel(target)
        if found is not None:
            self.multilabel.logical_or_(torch.as_tensor(found, device=self.multilabel.device))


def _is_flat(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() == 1


def _positions(logits: Tensor) -> int:
    return max(math.prod(logits.shape[2:]), 1)
