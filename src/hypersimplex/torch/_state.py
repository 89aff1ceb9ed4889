"""What HyperSimplexLoss keeps between calls, as buffers: how they are made, copied, loaded and converted."""

import math
import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from hypersimplex import _checks
from hypersimplex.torch import _tracking
from hypersimplex.torch._batch import per_class, whole
from hypersimplex.torch._boundary import computed, is_compiling, is_recorded

# Single numbers that exist from the start, and come first among the buffers: whoever pairs the buffers of two modules
# (an average of models, a distributed checkpoint) carries them over even where one of the two has no thresholds yet.
FACTS = ("classes", "multilabel", "folded", "sharpness")
_HALVES = (torch.float16, torch.bfloat16)
ROUNDING = 0.01  # of classes, in a checkpoint of half precision


class KeepsDigits(nn.Module):
    """A module whose buffers keep their digits when a model is turned to half: averages and counts need them."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.dtype in _HALVES:
                old = before[name]
                assert old is not None
                self._buffers[name] = old.to(buffer.device)
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        before = dict(self._buffers)
        super()._load_from_state_dict(*args)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer is not before[name] and buffer.dtype in _HALVES:  # by assign=True
                self._buffers[name] = buffer.float()


class State(KeepsDigits):
    """The running averages of every class, made at construction with num_classes, else by the first batch."""

    classes: Tensor  # how many have thresholds; 0 before there are any
    multilabel: Tensor  # 1 if each of several classes is decided by itself
    folded: Tensor  # 1 if thresholds and tau were written into a layer
    sharpness: Tensor  # factor of the scores in probabilities; 0 before there is one
    threshold: Tensor | None
    _flags: tuple[bool, bool]

    def __init__(self, num_classes: int | None) -> None:
        super().__init__()
        if num_classes is not None:
            num_classes = whole("num_classes", num_classes)
            if num_classes < 1:
                raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        self.num_classes = num_classes
        for name in FACTS:  # floating point: averages of models multiply buffers by 0.999
            with torch.inference_mode(False):
                self.register_buffer(name, torch.zeros(()))
        for name in _tracking.NAMES:
            self.register_buffer(name, None)
        self._flags = (False, False)
        self._warned: set[bool] = set()  # whether of some classes, or of all
        if self.num_classes is not None:
            self._make(self.num_classes, computed(torch.get_default_dtype()), self.classes.device)

    def reset_parameters(self) -> None:
        """Forget what was learned: back to the state at construction."""
        for name in FACTS:
            self._buffers[name].zero_()  # type: ignore[union-attr]
        if self.num_classes is None:
            self._buffers.update(dict.fromkeys(_tracking.NAMES))
        else:
            for name in _tracking.NAMES:
                self._buffers[name].zero_()  # type: ignore[union-attr]
            self.classes.fill_(self.num_classes)
        self._flags = (False, False)

    def train(self, mode: bool = True) -> Any:
        self._read_flags()
        return super().train(mode)

    def _read_flags(self) -> tuple[bool, bool]:
        """multilabel and folded. Where a graph is recorded they cannot be read: there they are as they last were."""
        if can_read(self.multilabel):
            if self.num_classes is not None and not math.isclose(self.classes, self.num_classes, rel_tol=ROUNDING):
                self.reset_parameters()  # memory that nobody filled, as to_empty leaves it
            self._flags = (bool(self.multilabel > 0.5), bool(self.folded > 0.5))
        return self._flags

    def _refuse_if_folded(self) -> None:
        if self._flags[1]:
            raise RuntimeError(
                "the thresholds and tau of this HyperSimplexLoss were folded into a layer, which puts out scores "
                "now: construct a new one to train or calibrate further, or call reset_parameters"
            )

    def _make(self, classes: int, dtype: torch.dtype, device: torch.device) -> None:
        self._buffers.update(_tracking.new_buffers(classes, dtype, device))
        self.classes.fill_(classes)

    def _buffers_for(self, classes: int, loss: Tensor) -> dict[str, Any]:
        """The running averages, made if this is the first batch."""
        buffers = self._buffers
        self._check_buffers()
        if buffers["threshold"] is None:
            self._make(classes, computed(loss.dtype), loss.device)
        self._check_classes(classes)
        return buffers

    def _check_buffers(self) -> None:
        if not self._buffers.keys() >= _tracking.NAMES_SET:
            name = min(_tracking.NAMES_SET - self._buffers.keys())
            raise TypeError(f"{name} must be a buffer of the loss, got a parameter in its place")
        if self._buffers["threshold"] is None:
            self._refuse_if_lost()

    def _check_classes(self, classes: int) -> None:
        threshold = self._buffers.get("threshold")
        if threshold is None:
            return
        if threshold.dim() != 1:
            raise _checks.wrong_shape("threshold", (classes,), threshold.shape)
        if threshold.shape[0] != classes:
            rule = "as before" if self.num_classes is None else "as num_classes says"
            raise ValueError(f"logits must have {threshold.shape[0]} classes, {rule}, got {classes}")

    def _known_threshold(self, logits: Tensor) -> Tensor:
        """Zeros before the first batch: validation may come before training."""
        self._refuse_if_lost()
        threshold, seen = self.threshold, self._buffers.get("seen")
        if threshold is None or seen is None or (can_read(seen) and not seen.all()):
            self._warn_of_zeros(seen)
        if threshold is None or seen is None:
            return torch.zeros(logits.shape[1] if logits.dim() > 1 else 1, device=logits.device)
        if threshold.dim() != 1:
            raise _checks.wrong_shape("threshold", seen.shape, threshold.shape)
        return threshold

    def _warn_of_zeros(self, seen: Tensor | None) -> None:
        """Once before the first batch, and once if some classes are still without a threshold after it."""
        if is_compiling():
            return
        absent = [] if seen is None or not seen.any() else seen.eq(0).nonzero().flatten().tolist()
        if bool(absent) not in self._warned:
            self._warned.add(bool(absent))
            which = f" for class {absent[0]}" if absent else ""
            which += f" and {len(absent) - 1} others" if absent[1:] else ""
            rule = "train, calibrate, or load them first"
            warnings.warn(f"HyperSimplexLoss has no thresholds{which} yet and decides by zeros: {rule}", stacklevel=5)

    def _independent(self, logits: Tensor) -> bool:
        """Whether every logit is decided by itself: binary and multi-label problems."""
        classes = logits.shape[1:2].numel() if self.threshold is None else self.threshold.shape[0]
        return classes == 1 or self._read_flags()[0]

    def _refuse_if_lost(self) -> None:
        """Thresholds that another module has, but that did not come along with what was copied from it."""
        if self.threshold is None and can_read(self.classes) and bool(self.classes):
            raise _checks.lost_thresholds(round(float(self.classes)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.threshold is None:
            warnings.warn(
                "a HyperSimplexLoss was copied before its first batch, so the copy has no thresholds and an average of "
                "models would not average them: construct it with num_classes",
                stacklevel=3,
            )
        copied = memo[id(self)] = self.__class__.__new__(self.__class__)
        copied.__setstate__(deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        return copied

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        _, _, missing, _, errors = args
        own = [prefix + name for name in (*FACTS, *_tracking.NAMES)]
        saved = next((state_dict[prefix + n] for n in _tracking.NAMES[:3] if prefix + n in state_dict), None)
        classes = state_dict.get(prefix + "classes")
        if saved is not None and self.threshold is None:
            self._make(saved.shape[0], computed(saved.dtype), self.classes.device)
        elif saved is None and classes is not None and not classes.is_meta:
            if bool(classes):
                errors.append(str(_checks.lost_thresholds(round(float(classes)))))
            else:  # of a module that had seen no batch
                self.reset_parameters()
        super()._load_from_state_dict(state_dict, prefix, *args)
        seen = self._buffers["seen"]
        if seen is not None and prefix + "threshold" in state_dict and prefix + "seen" not in state_dict:
            seen.clamp_(min=1)  # thresholds that were put in by hand are known
        fresh = seen is None or seen.is_meta or not seen.any()
        if saved is None and fresh:  # of a model trained with another loss, or not trained at all
            missing[:] = [name for name in missing if name not in own]
        if seen is not None:
            self.classes.fill_(seen.shape[0])
        self._read_flags()


def store(module: nn.Module, **values: Any) -> None:
    """Tensors as buffers, so that they move and are saved with the module; parameters and numbers as they are."""
    for name, value in values.items():
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            module.register_buffer(name, value)
        else:
            setattr(module, name, value)


def can_read(value: Tensor | None) -> bool:
    return type(value) is Tensor and not value.is_meta and not is_compiling() and not is_recorded()


def check_per_class(num_classes: int | None, **values: Any) -> None:
    """What has one number for each class has num_classes of them."""
    for name, value in values.items():
        if num_classes is not None and value is not None:
            device = value.device if isinstance(value, Tensor) else torch.device("cpu")
            per_class(name, value, num_classes, device)
