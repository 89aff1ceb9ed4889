"""The operator and the loss as modules: they store their arguments and call the functions."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hypersimplex.torch import decisions, loss
from hypersimplex.torch._targets import Number, check_reduction, per_class
from hypersimplex.torch.functional import soft_binary_argmax
from hypersimplex.torch.functional import threshold as find_threshold


class SoftBinaryArgmax(nn.Module):
    """Soft-Binary-Argmax@k along dim; see `soft_binary_argmax`.

    >>> SoftBinaryArgmax(k=1)(torch.tensor([0.1, 1.6, 1.0]))
    tensor([0.0000, 0.8000, 0.2000])
    """

    def __init__(self, k: Number, tau: Number = 1.0, dim: int = -1) -> None:
        super().__init__()
        self.k = k
        self.tau = tau
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return soft_binary_argmax(input, self.k, self.tau, self.dim)

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau}, dim={self.dim}"


class HyperSimplexLoss(nn.Module):
    """The HyperSimplex loss where nn.CrossEntropyLoss stood, with the thresholds that decisions need.

    The loss does not change when a constant is added to a class's logits, so the thresholds are part of the model:
    while training, every call moves `threshold` towards the batch's mu_c; `eval()` freezes it; `state_dict` saves it.
    Plain argmax of the logits is not a decision of this model, `predict` is. A class without a positive or without
    a negative sample in the batch has no threshold there and keeps the one it had.

    Args:
        weight, ignore_index, reduction, k, prior, tau, group: see `hypersimplex_loss`.
        momentum: weight of the latest batch in the running thresholds once 1/momentum batches have been seen; until
            then, and with None for ever, they are the plain average.

    >>> criterion = HyperSimplexLoss()
    >>> logits = torch.tensor([[2.1, 0.3], [1.6, 1.1], [1.0, 1.9]])
    >>> criterion(logits, torch.tensor([0, 0, 1]))
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
    threshold: Tensor | None
    share: Tensor | None
    seen: Tensor | None
    multilabel: Tensor

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        *,
        k: Number | None = None,
        prior: Number | None = None,
        tau: Number = 1.0,
        momentum: float | None = 0.1,
        group: Any = None,
    ) -> None:
        super().__init__()
        if k is not None and prior is not None:
            raise ValueError(f"k and prior must not both be given, got k={k} and prior={prior}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1 or None, got {momentum}")
        check_reduction(reduction)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.momentum = momentum
        self.group = group
        for name, value in (("weight", weight), ("k", k), ("prior", prior), ("tau", tau)):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        for name in ("threshold", "share", "seen"):  # made when the number of classes is known
            self.register_buffer(name, None)
        self.register_buffer("multilabel", torch.tensor(False))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        settings = loss.Settings(self.weight, self.ignore_index, self.reduction, self.k, self.prior, self.tau)
        outcome = loss.compute(logits, target, settings, self.group)
        if self.training:
            self._track(outcome, self.momentum)
            if target.shape == logits.shape and logits.dim() > 1:
                self._note_multilabel(target)
        return outcome.loss

    def scores(self, logits: Tensor) -> Tensor:
        """(logit - threshold)/tau for every class: above one half means positive."""
        threshold = self._need_threshold()
        return decisions.scores(logits, threshold, self._tau_of(threshold))

    def predict(self, logits: Tensor) -> Tensor:
        """The class of every sample; for a binary or multi-label problem, 0 or 1 for every logit."""
        return decisions.decide(self.scores(logits), self._need_threshold().shape[0], bool(self.multilabel))

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Tensor | tuple[Tensor, Tensor]]) -> "HyperSimplexLoss":
        """Set the thresholds to their exact average over batches of logits, or of (logits, target).

        Without targets k is what `prior` or `k` say, or the share of positives seen in training.
        """
        count = 0
        for index, batch in enumerate(batches):
            outcome = self._measure(batch)
            if index == 0:
                self._make_buffers(outcome.threshold)
                for buffer in (self.threshold, self.seen):
                    assert buffer is not None
                    buffer.zero_()
            self._track(outcome, None, keep_share=not isinstance(batch, tuple))
            count += 1
        if count == 0:
            raise ValueError("batches must hold at least one batch of logits, got none")
        return self

    def fold_into_(self, linear: nn.Module) -> nn.Module:
        """Write the thresholds and tau into the last layer: its plain argmax is then what `predict` was.

        The layer puts out scores from then on. This module keeps its thresholds, for logits of the layer as it was.
        """
        threshold = self._need_threshold()
        decisions.fold_(linear, threshold, self._tau_of(threshold))
        return linear

    def extra_repr(self) -> str:
        given = {"k": self.k, "prior": self.prior}
        parts = [f"{name}={value}" for name, value in given.items() if value is not None]
        return ", ".join([f"reduction={self.reduction!r}", *parts, f"tau={self.tau}", f"momentum={self.momentum}"])

    def _need_threshold(self) -> Tensor:
        if self.threshold is None:
            raise RuntimeError("thresholds are not known yet: call the loss in training mode, calibrate, or load them")
        return self.threshold

    def _tau_of(self, threshold: Tensor) -> Tensor:
        return per_class("tau", self.tau, threshold.shape[0], threshold.device).detach()

    def _measure(self, batch: Tensor | tuple[Tensor, Tensor]) -> loss.Outcome:
        if not isinstance(batch, Tensor):
            logits, target = batch
            settings = loss.Settings(None, self.ignore_index, "sum", self.k, self.prior, self.tau)
            return loss.compute(logits, target, settings, self.group)
        columns = batch.reshape(1, -1) if batch.dim() == 1 else batch.transpose(0, 1).reshape(batch.shape[1], -1)
        classes, samples = columns.shape
        if self.k is not None:
            k = per_class("k", self.k, classes, batch.device)
        elif self.prior is not None or self.share is not None:
            k = per_class("prior", self.share if self.prior is None else self.prior, classes, batch.device) * samples
        else:
            raise ValueError("batches must be pairs (logits, target) unless prior or k is given, got logits alone")
        tau = per_class("tau", self.tau, classes, batch.device).detach()
        return loss.Outcome(columns.sum(), find_threshold(columns.detach(), k, tau, dim=1), k, samples)

    def _make_buffers(self, like: Tensor) -> None:
        classes = like.shape[0]
        if self.threshold is not None:
            if self.threshold.shape[0] != classes:
                raise ValueError(f"logits must have {self.threshold.shape[0]} classes, as before, got {classes}")
            return
        self.threshold = torch.zeros(classes, dtype=torch.float32, device=like.device)
        self.share = torch.zeros(classes, dtype=torch.float32, device=like.device)
        self.seen = torch.zeros(classes, dtype=torch.float32, device=like.device)

    @torch.no_grad()
    def _track(self, outcome: loss.Outcome, momentum: float | None, keep_share: bool = False) -> None:
        mu, k, samples = outcome.threshold, outcome.k, outcome.samples
        self._make_buffers(mu)
        assert self.threshold is not None and self.seen is not None and self.share is not None
        # A NaN or infinite threshold of one bad batch must not spoil the average.
        moves = (k > 0) & (k < samples) & mu.isfinite()
        seen = self.seen + moves
        rate = 1 / seen.clamp(min=1) if momentum is None else (1 / seen.clamp(min=1)).clamp(min=momentum)
        rate = torch.where(moves, rate, 0)
        self.threshold.add_(torch.where(moves, rate * (mu - self.threshold), 0).to(self.threshold.dtype))
        if not keep_share:
            part = torch.where(moves, k / samples, 0).to(self.share.dtype)
            self.share.add_(torch.where(moves, rate * (part - self.share), 0).to(self.share.dtype))
        self.seen.copy_(seen)

    @torch.no_grad()
    def _note_multilabel(self, target: Tensor) -> None:
        """Dense targets are one class's share each (they sum to 1), or labels of their own."""
        sums = target.to(torch.float32).sum(1)
        self.multilabel.logical_or_(((sums - 1).abs() > 1e-3).any())

    def _apply(self, fn: Any, recurse: bool = True) -> "HyperSimplexLoss":
        # Thresholds stay in single precision when a model is turned to half: a decision needs their digits.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in ("threshold", "share", "seen"):
            buffer = getattr(self, name)
            if buffer is not None and buffer.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, buffer.float())
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in ("threshold", "share", "seen"):
            saved = state_dict.get(prefix + name)
            if saved is not None and getattr(self, name) is None:
                setattr(self, name, torch.zeros_like(saved, device=self.multilabel.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
