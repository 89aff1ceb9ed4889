"""One training: the same loop, data order and initial weights for every loss."""

import copy
import ctypes
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from hypersimplex_study import checkpoint, evaluation, speedrun
from hypersimplex_study.batches import Features, Images, prepare
from hypersimplex_study.config import RunConfig
from hypersimplex_study.losses import make_loss
from hypersimplex_study.models import make_network
from hypersimplex_study.records import Epoch
from hypersimplex_study.samples import Data

# glibc's numbers of two settings of malloc.
TRIM_THRESHOLD, MMAP_MAX = -1, -4
# "linear" is the scaling rule: the learning rate grows with the batch size, from this one.
REFERENCE_BATCH = 128
# "triangular" begins at a fifth of the learning rate, is at all of it after 23 % of the steps, and ends at 7 %.
TRIANGLE = (0.2, 0.23, 0.07)
# "warmup" reaches the learning rate after this part of the steps.
WARM_UP = 0.1


class DivergedError(ArithmeticError):
    """The training loss or the weights are no longer finite."""


@dataclass(frozen=True)
class Runtime:
    """How a run is computed, which does not identify it."""

    device: str = "cpu"
    threads: int | None = None
    channels_last: bool = False
    compile: bool = False
    data_folder: str | None = None


@lru_cache
def keep_memory() -> None:
    """Let this process keep the memory it frees.

    glibc gives large blocks back to the system, and taking their pages anew at every step doubles the time of a large
    batch on a CPU.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(TRIM_THRESHOLD, -1)
        library.mallopt(MMAP_MAX, 0)


def evaluation_batch(device: torch.device) -> int:
    """Return what fits a CPU's cache (twice as fast as 512 for the paper's network), or what fills another device."""
    return 128 if device.type == "cpu" else 1024


def learning_rate(config: RunConfig, step: int, steps: int) -> float:
    schedule = "warmup" if config.loss == "cross-entropy-warmup" else config.schedule
    if schedule == "linear":
        return config.lr * config.batch_size / REFERENCE_BATCH
    if schedule == "triangular":
        return config.lr * triangle(step / steps)
    warm = max(1, round(WARM_UP * steps)) if schedule == "warmup" else 0
    if step < warm:
        return config.lr * (step + 1) / warm
    if schedule in ("cosine", "warmup"):
        return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    return config.lr


def triangle(progress: float) -> float:
    """
    >>> [round(triangle(p), 2) for p in (0, 0.23, 1)]
    [0.2, 1.0, 0.07]
    """
    start, height, end = TRIANGLE
    if progress < height:
        return start + (1 - start) * progress / height
    return 1 - (1 - end) * (progress - height) / (1 - height)


def passes(config: RunConfig, samples: int) -> int:
    """Return how often an epoch goes over the training samples: once, or as often as `min_steps` needs.

    >>> passes(RunConfig(batch_size=1000, epochs=40, min_steps=200), 1000)
    5
    """
    epochs = config.tunes_for or config.epochs
    return max(1, math.ceil((config.min_steps or 0) / (epochs * math.ceil(samples / config.batch_size))))


class Training:
    """A training that can stop after any epoch and go on elsewhere with the same numbers."""

    def __init__(self, config: RunConfig, data: Data, runtime: Runtime) -> None:
        self.config, self.data, self.runtime = config.training(), data, runtime
        if runtime.threads:
            torch.set_num_threads(runtime.threads)
        self.device = torch.device(runtime.device)
        if self.device.type == "cpu":
            keep_memory()
        self.prepared = prepare(data, config.subset, config.validation, config.augment, self.device)
        torch.manual_seed(config.seed)
        model = make_network(config.network, config.width, data).to(self.device)
        if runtime.channels_last and data.is_image:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model = model
        self.forward = torch.compile(model) if runtime.compile else model
        self.loss: Any = make_loss(config, len(data.classes)).to(self.device)
        if config.optimizer == "adam":
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), config.lr)
        else:
            groups = speedrun.groups(model, config.lr, config.bias_rate, config.weight_decay)
            nesterov = config.optimizer == "nesterov"
            self.optimizer = torch.optim.SGD(groups, config.lr, momentum=config.momentum, nesterov=nesterov)
        # The schedule changes all rates by one factor.
        self.rates = [group["lr"] / config.lr for group in self.optimizer.param_groups]
        self.generator = torch.Generator().manual_seed(config.seed)
        self.part = evaluation.part_of(self.prepared.train_rows)
        self.history: list[Epoch] = []

    @property
    def passes(self) -> int:
        return passes(self.config, len(self.prepared.train_rows))

    @property
    def steps_per_epoch(self) -> int:
        return self.passes * math.ceil(len(self.prepared.train_rows) / self.config.batch_size)

    @property
    def sizes(self) -> dict[str, int]:
        here = self.prepared
        return {"train": len(here.train_rows), "validation": len(here.validation_rows), "test": len(here.test_y)}

    @property
    def finished(self) -> bool:
        return len(self.history) >= self.config.epochs

    def inputs(self, source: Images | Features, rows: Tensor, augment: bool = False) -> Tensor:
        x = source.batch(rows, self.generator if augment else None)
        if self.data.is_image:
            memory = torch.channels_last if self.runtime.channels_last else torch.contiguous_format
            x = x.contiguous(memory_format=memory)
        return x

    def logits(self, x: Tensor, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        half = self.config.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            out: Tensor = (network or self.forward)(x)
        return out.float()

    def decided(self, x: Tensor, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the logits that an evaluation is by. Thresholds and offsets are fitted to such means, too."""
        found = self.logits(x, network)
        return (found + self.logits(x.flip(3), network)) / 2 if self.config.flips and self.data.is_image else found

    def step(self, rows: Tensor) -> Tensor:
        x = self.inputs(self.prepared.train, rows, self.config.augment)
        self.optimizer.zero_grad(set_to_none=True)
        value: Tensor = self.loss(self.logits(x), self.prepared.train_y[rows])
        value.backward()
        self.optimizer.step()
        return value.detach()

    def run_epoch(self) -> Epoch:
        """Train one epoch, evaluate, and return what is to be recorded; DivergedError where the loss is not finite."""
        began = time.perf_counter()
        number = len(self.history)
        mean, lr = self.train_epoch(number)
        if not math.isfinite(mean):
            raise DivergedError(f"the training loss of epoch {number} is {mean}")
        # The hinge of NaN logits is zero: a loss can look fine after the network is lost.
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise DivergedError(f"the network's weights are not finite after epoch {number}")
        trained = time.perf_counter()
        self.recompute()
        recomputed = time.perf_counter()
        measured = self.evaluate()
        end = time.perf_counter()
        epoch = Epoch(
            number,
            mean,
            lr,
            seconds=end - began,
            steps=(number + 1) * self.steps_per_epoch,
            recompute_seconds=recomputed - trained,
            evaluate_seconds=end - recomputed,
            **measured,
        )
        self.history.append(epoch)
        return epoch

    def train_epoch(self, number: int) -> tuple[float, float]:
        """Take the steps of one epoch; return the mean loss and the last learning rate."""
        config, rows = self.config, self.prepared.train_rows
        self.model.train()
        self.loss.train()
        # One number on the device, read once an epoch: reading it at every step would wait for the device.
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        lr, step, steps = config.lr, number * self.steps_per_epoch, config.epochs * self.steps_per_epoch
        for _ in range(self.passes):
            order = rows[torch.randperm(len(rows), generator=self.generator)]
            for part in torch.split(order, config.batch_size):
                lr = learning_rate(config, step, steps)
                if hasattr(self.loss, "begin_step"):
                    self.loss.begin_step(step / steps)
                for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                    group["lr"] = lr * rate
                total += self.step(part) * len(part)
                step += 1
        return float(total) / (len(rows) * self.passes), lr

    def recompute(self) -> None:
        """Before an evaluation: set statistics and offsets for the present weights, unless running ones decide."""
        if self.config.evaluation != "running":
            here = self.prepared

            def logits(rows: Tensor) -> Tensor:
                # Not compiled: this way of running the network would be compiled anew every time.
                return self.decided(self.inputs(here.train, rows), self.model)

            evaluation.recompute(self.model, self.loss, logits, self.part, here.train_y)

    @torch.no_grad()
    def outputs(self, source: Images | Features, rows: Tensor) -> Tensor:
        """Return the logits of some samples, in the memory of the CPU."""
        self.model.eval()
        parts = torch.split(rows, evaluation_batch(self.device))
        return torch.cat([self.decided(self.inputs(source, part)).cpu() for part in parts])

    @torch.no_grad()
    def evaluate(self) -> dict[str, Any]:
        """Measure the validation and the test samples; the names are the fields of an epoch."""
        here = self.prepared
        self.loss.eval()
        wanted = {"val": (here.train, here.train_y, here.validation_rows)}
        wanted["test"] = (here.test, here.test_y, torch.arange(len(here.test_y)))
        parts = {n: (y[rows].cpu().numpy(), self.outputs(x, rows)) for n, (x, y, rows) in wanted.items() if len(rows)}
        loss = self.loss if self.device.type == "cpu" else copy.deepcopy(self.loss).cpu()
        return evaluation.measures(loss, parts)

    def snapshot(self) -> bytes:
        """Return everything the rest of the training depends on."""
        return checkpoint.pack(
            {
                "key": self.config.key(),
                "model": self.model.state_dict(),
                "loss": self.loss.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "generator": self.generator.get_state(),
                # Networks with dropout draw from torch's own generators.
                "torch_random": torch.get_rng_state(),
                "cuda_random": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
                "history": [asdict(e) for e in self.history],
            }
        )

    def restore(self, raw: bytes) -> None:
        state = checkpoint.unpack(raw, self.config.key())
        self.loss.load_state_dict(state["loss"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        torch.set_rng_state(state["torch_random"])
        if state["cuda_random"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_random"], self.device)
        self.history = [Epoch(**e) for e in state["history"]]
