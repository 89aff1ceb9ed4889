"""One's own loss, `module:function`: a function that returns a module with `forward(logits, target)`.

A module that decides by something else than the largest logit has `predict(logits)` too. What identifies it is its name
and a hash of the module's source, so that a changed loss is another one.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import nn

from hypersimplex_study.config import RunConfig, trained

if TYPE_CHECKING:
    from hypersimplex_study.store import Store


def code_of(loss: str) -> str:
    """Return a hash of the source of the module that a loss comes from."""
    file = _module(trained(loss)).__file__
    if file is None:
        raise ValueError(f"loss {loss!r} must come from a module with a file")
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def make(config: RunConfig) -> nn.Module:
    """Call the function."""
    name = trained(config.loss)
    module, found = _module(name), code_of(name)
    if found != config.code:
        raise ValueError(f"loss {name} must have the code that its run was entered with ({config.code}), got {found}")
    try:
        made = getattr(module, name.partition(":")[2])()
    except Exception as error:
        raise ValueError(f"loss {name} cannot be made ({type(error).__name__}: {error})") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"loss {name} must return a torch.nn.Module, got {type(made).__name__}")
    if any(p.requires_grad for p in made.parameters()):
        raise ValueError(f"loss {name} must have no parameters, which would not be trained; use buffers")
    return made


def check(config: RunConfig, classes: int) -> None:
    """Try a loss on a few logits before the first training."""
    name = trained(config.loss)
    made = make(config)
    logits = torch.linspace(-1, 1, 4 * classes).reshape(4, classes).requires_grad_()
    try:
        value = made(logits, torch.arange(4) % classes)
        value.backward()
        if callable(predict := getattr(made, "predict", None)):
            predict(logits.detach())
    except Exception as error:
        raise ValueError(f"loss {name} fails on logits (4, {classes}) ({type(error).__name__}: {error})") from error
    if value.ndim or not bool(torch.isfinite(value)):
        raise ValueError(f"loss {name} must return one finite number, got {value.detach()}")


def check_code(store: "Store", configs: Iterable[RunConfig]) -> None:
    """Refuse to mix runs of different code under one name."""
    for name, code in {(trained(c.loss), c.code) for c in configs if c.code is not None}:
        others = store.codes(name) - {code}
        if others:
            raise ValueError(
                f"loss {name} has other code ({code}) than the runs in {store.path} ({', '.join(sorted(others))}); "
                "name another file with --store"
            )


def _module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, _, function = name.partition(":")
    try:
        found = importlib.import_module(module)
        getattr(found, function)
    except Exception as error:
        raise ValueError(f"loss {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    return found
