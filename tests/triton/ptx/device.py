"""A device for Triton that executes PTX: its own just-in-time compiler specializes, compiles and launches into it.

What a launch is given is the memory of CPU tensors. A tensor that `torch.empty` or `empty_like` made since `emulated`
began holds nothing until a kernel writes it, and a launch that leaves a part of it unwritten is a fault.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget

from tests.triton.ptx.faults import Fault, Unwritten
from tests.triton.ptx.machine import Program
from tests.triton.ptx.memory import Global, Region
from tests.triton.ptx.numbers import UNSIGNED

# Bytes of shared memory that a block may have.
SHARED_BYTES = {75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}
ARCHITECTURES = (75, 80, 89, 90, 100, 120)
SCALARS = {"i1": np.int8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u1": np.uint8,
           "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "fp32": np.float32,
           "f32": np.float32, "fp64": np.float64}  # fmt: skip

Change = Callable[[Program], Program]


def _ptx_is_the_binary(backend: Any = None, stages: Any = None, *_: Any) -> Any:
    """For Triton's `add_stages_inspection_hook`: stop at PTX. Without arguments: the key of this for its cache."""
    if stages is None:
        return "ptx", "ptx"
    stages["cubin"] = lambda text, metadata: text.encode()
    return None


class Launch:
    """What `launcher_cls` makes of a compiled kernel: a function that launches it."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.types = list(source.signature.values())
        self.shared = metadata.shared
        for name in ("global_scratch_size", "profile_scratch_size"):
            if getattr(metadata, name, 0):
                raise Fault(f"a kernel that asks for {name}")

    def __call__(self, x: int, y: int, z: int, _stream: Any, function: Any, *rest: Any) -> None:
        # Packed and launch metadata and two hooks, then the arguments.
        given = [(kind, value) for kind, value in zip(self.types, rest[4:], strict=True) if kind != "constexpr"]
        triton.runtime.driver.active.execute(function, (x, y, z), given, self.shared)


class Emulated:
    """A driver of Triton whose one device executes PTX of the architecture."""

    def __init__(self, architecture: int, change: Change) -> None:
        self.architecture, self.change = architecture, change
        self.counts: dict[str, Counter[str]] = {}  # of each kernel: how often threads executed each kind of instruction
        self.shared_of: dict[int, int] = {}  # bytes of each program that was launched
        self.launcher_cls = Launch
        self.utils = SimpleNamespace(
            load_binary=self._load,
            get_device_properties=lambda device: {"max_shared_mem": SHARED_BYTES[architecture]},
        )
        self.fresh: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    # What Triton asks a driver.
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return self.architecture

    def get_current_stream(self, _device: int) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def _load(self, name: str, binary: bytes, _shared: int, _device: int) -> Any:
        return None, Program(binary.decode()), 0, 0, 1024  # no module that would have to be unloaded

    def execute(self, program: Program, grid: tuple[int, int, int], given: list[Any], shared: int) -> None:
        tensors = [value for _, value in given if isinstance(value, torch.Tensor)]
        regions = self._regions(tensors)
        self.shared_of[id(program)] = shared
        parameters = [_bits(kind, value) for kind, value in given]
        # Two pointers follow, to memory that no kernel here asks for.
        parameters += [np.uint64(0)] * (len(program.kernel.parameters) - len(parameters))
        found = self.change(program).run(grid, parameters, Global(regions), shared)
        name = program.kernel.name
        self.counts.setdefault(name, Counter()).update(
            {kind: count * program.kernel.threads for kind, count in found.items()}
        )
        for region in regions:
            if left := region.unwritten():
                raise Unwritten(f"{name} leaves {left} bytes of its {region.end - region.begin} unwritten")
        for tensor in tensors:
            self.fresh.pop(tensor.data_ptr(), None)

    def _regions(self, tensors: list[torch.Tensor]) -> list[Region]:
        spans: dict[int, tuple[int, bool]] = {}
        for tensor in tensors:
            begin = tensor.data_ptr()
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            end = begin + (last + 1) * tensor.element_size() * (tensor.numel() > 0)
            spans[begin] = max(end, spans.get(begin, (0,))[0]), self.fresh.get(begin) is not None
        return [Region(begin, end, is_fresh) for begin, (end, is_fresh) in spans.items() if end > begin]

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel():
            self.fresh[tensor.data_ptr()] = tensor
        return tensor


def _bits(kind: str, value: Any) -> Any:
    if kind.startswith("*"):
        return np.uint64(value.data_ptr())
    number = np.array(value, SCALARS[kind])
    return number.view(UNSIGNED[8 * number.itemsize])[()]


@contextmanager
def emulated(architecture: int, change: Change = lambda program: program) -> Iterator[Emulated]:
    """Kernels are compiled for the architecture and executed here, on the memory of CPU tensors.

    `change` may put another program in the place of the one that is launched.
    """
    device = Emulated(architecture, change)
    before, makers = triton.runtime.driver._active, {name: getattr(torch, name) for name in ("empty", "empty_like")}
    hook = triton.knobs.runtime.add_stages_inspection_hook
    triton.runtime.driver.set_active(device)
    triton.knobs.runtime.add_stages_inspection_hook = _ptx_is_the_binary
    for name, make in makers.items():
        setattr(torch, name, lambda *args, _make=make, **options: device.note(_make(*args, **options)))
    try:
        yield device
    finally:
        for name, make in makers.items():
            setattr(torch, name, make)
        triton.knobs.runtime.add_stages_inspection_hook = hook
        triton.runtime.driver._active = before
