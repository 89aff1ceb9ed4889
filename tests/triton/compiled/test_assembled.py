"""A gate for what needs no execution: ptxas finds room for the kernels, and no entry costs work in float64.

Consumer GPUs compute in float64 at 1/64 of their speed.
"""

import pytest
import torch

from hypersimplex.torch.backends import triton as backend
from hypersimplex.torch.backends.triton import _backend, _kernels
from tests.triton.compiled.changed import with_fault
from tests.triton.conftest import ALL
from tests.triton.ptx.assembled import assembled, calls, every
from tests.triton.ptx.device import ARCHITECTURES

WIDE = ("float64", "float64 division")


def float64(dtype, tile):
    """How many instructions of float64 each kernel has."""
    return {name: sum(found.instructions[kind] for kind in WIDE) for name, found in every(90, dtype, tile, tile)}


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda each: f"sm_{each}")
def test_float32_kernels_spill_nothing_and_two_fit_a_multiprocessor(architecture, capsys):
    found = dict(every(architecture, torch.float32, _backend.TILE))
    with capsys.disabled():
        for name, each in found.items():
            print(f"\nsm_{architecture} {name}: {each.registers} registers, {each.blocks(architecture)} blocks", end="")
    assert {name: each.spilled for name, each in found.items() if each.spilled} == {}
    assert {name: each.blocks(architecture) for name, each in found.items() if each.blocks(architecture) < 2} == {}


@pytest.mark.parametrize("dtype", [torch.float32, *([torch.float16, torch.bfloat16] if ALL else [])], ids=str)
def test_twice_the_entries_need_no_more_float64(dtype):
    """Four warps hold a tile of 1,024 entries and one of 2,048: what they do per entry is there twice."""
    assert float64(dtype, 1024) == float64(dtype, 2048)


def of_one(monkeypatch, name, tile):
    """The one kernel of a call, in tiles of so many entries."""
    monkeypatch.setattr(_backend, "TILE", tile)
    monkeypatch.setattr(_backend, "LONG_TILE", tile)
    (found,) = assembled(90, calls(torch.float32, tile)[name])
    return found


def test_one_operation_in_float64_per_entry_is_seen(tmp_path, monkeypatch):
    right = "y + places, projected(z, share, t, c, e, at, flat)"
    wrong = "y + places, projected(z, share, t, c, e, at, flat).to(tl.float64) * 1.1"
    monkeypatch.setattr(backend, "_kernels", with_fault(_kernels, tmp_path / "kernels.py", right, wrong))
    few, many = (of_one(monkeypatch, "project rows", tile).instructions["float64"] for tile in (1024, 2048))
    assert many - few >= 8  # 128 threads hold 1,024 entries more


def test_a_spill_is_seen(monkeypatch):
    monkeypatch.setattr(_backend, "PROGRAMS", ((_backend.TILE, 4, 32),))
    assert of_one(monkeypatch, "project rows", 2048).spilled > 0


def test_instructions_per_entry(monkeypatch, capsys):
    """Of PTX, in all passes over the entries that the source has; a loop counts once."""
    for name in ("project long rows", "pullback long rows"):
        few, many = (of_one(monkeypatch, name, tile).instructions.total() for tile in (1024, 2048))
        each = (many - few) / 8  # 128 threads hold 1,024 entries more
        with capsys.disabled():
            print(f"\nsm_90 {name}: {each:.1f} PTX instructions per entry", end="")
        assert 0 < each < 150
