"""Small files in the publishers' formats."""

import gzip
import lzma

import numpy as np


def libsvm(x, y, first=1):
    lines = []
    for row, label in zip(x, y, strict=True):
        lines.append(" ".join([f"{label:g}", *(f"{i + first}:{v:.9g}" for i, v in enumerate(row) if v)]))
    return "\n".join(lines) + "\n"


def problem(n, features, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, features)).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = 0
    return x, np.arange(n) % 2


def write(root, folder, **files):
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / folder / name.replace("__", ".")
        pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
        path.write_bytes(pack(content.encode()))
