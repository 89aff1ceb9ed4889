"""Values that NumPy cannot read as arrays of numbers, or only with a loss: for the front ends of NumPy and JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

X = np.array([[0.1, 1.6, 1.0], [2.0, -3.0, 0.5]], np.float32)
VALUES = {
    "a tensor that requires grad": (lambda: torch.ones(3, requires_grad=True), "got Tensor: Can't call numpy"),
    "a sparse tensor": (lambda: torch.ones(3).to_sparse(), "got Tensor: can't convert Sparse layout"),
    "a tensor without values": (lambda: torch.ones(3, device="meta"), "got Tensor: can't convert meta device"),
    "uneven rows": (lambda: [[1.0], [1.0, 2.0]], "got list: "),
}
HUGE = {"a number": 10**400, "a number below": -(10**400), "among others": [1, 10**400, 1]}


def calls(front: Any) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Every argument of every function that is an array of numbers: its name, and a call with it."""
    return {
        "soft_topk: x": ("x", lambda v: front.soft_topk(v, 1)),
        "soft_topk: k": ("k", lambda v: front.soft_topk(X, v)),
        "soft_topk: tau": ("tau", lambda v: front.soft_topk(X, 1, v)),
        "threshold: x": ("x", lambda v: front.threshold(v, 1)),
        "binary_argmax: x": ("x", lambda v: front.binary_argmax(v, 1)),
        "binary_argmax: k": ("k", lambda v: front.binary_argmax(X, v)),
        "segments: x": ("x", lambda v: front.soft_topk_segments(v, 1, [0, 3])),
        "segments: k": ("k", lambda v: front.soft_topk_segments(X[0], v, [0, 1, 2, 3])),
        "segments: offsets": ("offsets", lambda v: front.soft_topk_segments(X[0], 1, v)),
        "box_section: x": ("x", lambda v: front.box_section(v, 1)),
        "box_section: total": ("total", lambda v: front.box_section(X, v)),
        "box_section: tau": ("tau", lambda v: front.box_section(X, 1, tau=v)),
        "box_section: lower": ("lower", lambda v: front.box_section(X, 1, v)),
        "box_section: upper": ("upper", lambda v: front.box_section(X, 1, 0.0, v)),
        "box_section: weight": ("weight", lambda v: front.box_section(X, 1, weight=v)),
        "soft_assignment: x": ("x", lambda v: front.soft_assignment(v, 1, 1)),
        "soft_assignment: k": ("k", lambda v: front.soft_assignment(X, v, 1)),
        "soft_assignment: capacity": ("capacity", lambda v: front.soft_assignment(X, 1, v)),
    }
