"""Checkpoints: written whole or not at all, and recognized when damaged."""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

MAGIC = b"hypersimplex checkpoint 1\n"


class CheckpointError(ValueError):
    """The file is not a whole checkpoint of this training."""


def pack(state: dict[str, Any]) -> bytes:
    """Turn a state into bytes that carry their own hash."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    return MAGIC + hashlib.sha256(payload).digest() + payload


def unpack(raw: bytes, key: str) -> dict[str, Any]:
    head = len(MAGIC) + 32
    payload = raw[head:]
    if raw[: len(MAGIC)] != MAGIC or hashlib.sha256(payload).digest() != raw[len(MAGIC) : head]:
        raise CheckpointError(f"checkpoint of {key} is damaged ({len(raw)} bytes)")
    state: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    if state["key"] != key:
        raise CheckpointError(f"checkpoint of {key} belongs to {state['key']}")
    return state


def path(folder: Path, key: str) -> Path:
    return folder / f"{key}.checkpoint"


def write(folder: Path, key: str, raw: bytes) -> None:
    """Write beside the old file and rename: whoever dies in between leaves the old one.

    No fsync: it would cost more than a short epoch, and after a power cut the hash tells a torn file from a whole one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{key}.checkpoint.new"
    try:
        with open(temporary, "wb") as file:
            file.write(raw)
        os.replace(temporary, path(folder, key))
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read(folder: Path, key: str) -> bytes | None:
    try:
        return path(folder, key).read_bytes()
    except FileNotFoundError:
        return None


def remove(folder: Path, key: str) -> None:
    path(folder, key).unlink(missing_ok=True)
    (folder / f"{key}.checkpoint.new").unlink(missing_ok=True)
