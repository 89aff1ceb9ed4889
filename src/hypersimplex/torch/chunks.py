"""The exact gradient of a large batch in the memory of a small one."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hypersimplex.torch._boundary import check_layout
from hypersimplex.torch._ranks import Ranks, members, together
from hypersimplex.torch.modules import HyperSimplexLoss

Inputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]


def backward_in_chunks(
    model: nn.Module,
    loss: Callable[[Tensor, Any], Tensor],
    inputs: Inputs,
    targets: Any,
    *,
    chunk_size: int,
    scaler: Any = None,
) -> Tensor:
    """Add the gradient of loss(model(inputs), targets) to every parameter's .grad, in the memory of one chunk.

    A loss that couples the samples of a batch cannot be summed over smaller batches. So the model runs twice. First it
    computes all logits, chunk by chunk and without gradients. The loss of all logits gives their gradient. Then every
    chunk runs again, with the same random numbers, and passes on its part of that gradient. The price is one more
    forward pass.

    Dropout draws the same masks both times. Buffers are restored before the second pass, so running statistics move
    once. BatchNorm in training mode normalizes by the statistics of a chunk, and the gradient is exact for that model.
    Under DistributedDataParallel gradients are exchanged once, with the last chunk. With a `group` in the loss, ranks
    may have different numbers of samples and chunks. For mixed precision call it inside `torch.autocast`.

    Args:
        model: returns logits whose first dim is the batch; may be wrapped in DistributedDataParallel.
        loss: called once as loss(logits, targets); returns a scalar. Its own parameters get their gradient too.
        inputs: a tensor, a tuple or list (model(*inputs)), or a dict (model(**inputs)) of tensors, batch first.
        targets: passed to the loss as they are.
        chunk_size: samples per chunk; the last chunk may have fewer.
        scaler: a GradScaler, to scale the loss before its gradient is taken.

    Returns:
        The loss, detached and not scaled.

    >>> from hypersimplex.torch import hypersimplex_loss
    >>> _ = torch.manual_seed(0)
    >>> model, x, y = nn.Linear(4, 3), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> value = backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=2)
    >>> whole = hypersimplex_loss(model(x), y)
    >>> torch.allclose(torch.autograd.grad(whole, model.weight)[0], model.weight.grad)
    True
    """
    ranks, call = _ranks(model, loss), "backward_in_chunks"
    chunks: list[_Chunks] = []

    def first_pass() -> list[Tensor]:
        chunks.append(_Chunks(model, inputs, chunk_size))
        return chunks[0].logits()

    try:
        outputs = together(ranks, call, first_pass)
        value, gradients = together(ranks, call, lambda: _loss_gradient(loss, outputs, targets, scaler))
    except BaseException:  # a wrong label must not cost random numbers
        for each in chunks:
            each.began.restore()
        raise
    chunks[0].backward(gradients)
    return value


def _ranks(model: nn.Module, loss: object) -> Ranks | None:
    """Who must know if a step fails here: the ranks that wait for this one's gradients, or for its logits."""
    group = model.process_group if isinstance(model, DistributedDataParallel) else None
    if group is None and isinstance(loss, HyperSimplexLoss):
        group = loss.group
    return None if group is None else members(group, next(iter(model.parameters()), None))


class _Chunks:
    """The inputs in chunks, and the two passes over them."""

    def __init__(self, model: nn.Module, inputs: Inputs, chunk_size: int) -> None:
        if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
            raise ValueError(f"chunk_size must be a whole number of at least 1, got {chunk_size!r}")
        self.names, self.parts = _read(inputs)
        chunk_size = min(chunk_size, max(len(self.parts[0]), 1))
        # At least one chunk: a rank without samples takes part in the exchange of gradients all the same.
        self.chunks = list(zip(*(part.split(chunk_size) for part in self.parts), strict=True))
        self.model = model
        self.inner = model.module if isinstance(model, DistributedDataParallel) else model
        self.began = _RandomState(self.parts)
        self.states: list[_RandomState] = []

    @torch.no_grad()
    def logits(self) -> list[Tensor]:
        """Of every chunk, without gradients."""
        before = {name: buffer.clone() for name, buffer in self.inner.named_buffers()}
        outputs = []
        try:
            for chunk in self.chunks:
                self.states.append(_RandomState(chunk))
                outputs.append(_logits(self.inner, self.names, chunk))
        finally:  # before the loss: its thresholds may be buffers of the model
            for name, buffer in self.inner.named_buffers():
                if name in before:
                    buffer.copy_(before[name])
        # Weights that autocast turned to half without gradients must not be met again.
        torch.clear_autocast_cache()
        return outputs

    def backward(self, gradients: Sequence[Tensor]) -> None:
        """Every chunk again, with the same random numbers, and its part of the gradient."""
        after = _RandomState(self.parts)
        for index, chunk in enumerate(self.chunks):
            self.states[index].restore()
            last = index + 1 == len(self.chunks)
            with nullcontext() if last else getattr(self.model, "no_sync", nullcontext)():  # they are exchanged once
                logits = _logits(self.model, self.names, chunk)
                with torch.autocast(logits.device.type, enabled=False):
                    logits.backward(gradients[index])
        after.restore()


def _loss_gradient(
    loss: Callable[[Tensor, Any], Tensor], outputs: list[Tensor], targets: Any, scaler: Any
) -> tuple[Tensor, Sequence[Tensor]]:
    sizes = [output.shape[0] for output in outputs]
    logits = torch.cat(outputs).requires_grad_()
    outputs.clear()
    with torch.enable_grad():
        value = loss(logits, targets)
        if value.dim() != 0:
            raise ValueError(f"loss must give a scalar, got shape {tuple(value.shape)}")
        scaled = value if scaler is None else scaler.scale(value)
        with torch.autocast(logits.device.type, enabled=False):
            scaled.backward()
    assert logits.grad is not None
    return value.detach(), logits.grad.split(sizes)


def _read(inputs: Inputs) -> tuple[list[str], list[Tensor]]:
    """The tensors, and their names if they have some."""
    names = list(inputs) if isinstance(inputs, Mapping) else []
    parts = [inputs] if isinstance(inputs, Tensor) else list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    for part in parts:
        if not isinstance(part, Tensor) or part.dim() == 0:
            what = "a scalar" if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(
                f"inputs must be a tensor, or a tuple, list or dict of tensors with a batch dim, got {what}"
            )
        check_layout("inputs", part)
    sizes = [part.shape[0] for part in parts]
    if len(set(sizes)) != 1:
        raise ValueError(f"inputs must have the same size of dim 0, got {sizes}")
    return names, parts


def _logits(model: nn.Module, names: list[str], chunk: Sequence[Tensor]) -> Tensor:
    logits = model(**dict(zip(names, chunk, strict=True))) if names else model(*chunk)
    if not isinstance(logits, Tensor):
        raise TypeError(f"model must give one tensor of logits, got {type(logits).__name__}")
    return logits


class _RandomState:
    """The state of the default generators of the CPU and of the devices where the inputs lie, as of now."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.cpu = torch.get_rng_state()
        devices = {part.device for part in inputs if part.device.type != "cpu"}
        self.others = {device: torch.get_device_module(device).get_rng_state(device) for device in devices}

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        for device, state in self.others.items():
            torch.get_device_module(device).set_rng_state(state, device)
