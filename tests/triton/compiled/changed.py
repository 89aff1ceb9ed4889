"""Kernels that are wrong on purpose."""

import importlib.util
from pathlib import Path
from types import ModuleType


def with_fault(module: ModuleType, path: Path, right: str, wrong: str) -> ModuleType:
    """The module with a line of its source replaced; Triton reads the source from a file."""
    assert module.__file__
    text = Path(module.__file__).read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, wrong))
    spec = importlib.util.spec_from_file_location(module.__name__, path)
    assert spec
    assert spec.loader
    changed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(changed)
    return changed
