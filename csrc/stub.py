"""Write src/hypersimplex/_kernel.pyi, the types of the compiled module: `python csrc/stub.py` after a build."""

import re
from pathlib import Path

STUB = Path(__file__).parents[1] / "src" / "hypersimplex" / "_kernel.pyi"


def generate() -> str:
    from nanobind.stubgen import StubGen  # type: ignore[import-untyped]

    from hypersimplex import _kernel

    generator = StubGen(_kernel)
    generator.put(_kernel)
    text: str = generator.get()
    # Which arrays are taken is checked when they arrive; a type checker sees arrays.
    text = re.sub(r"Annotated\[NDArray(\[[^\]]*\])?, dict\([^)]*\)\]", "NDArray[Any]", text)
    text = text.replace("import numpy\n", "").replace("from typing import Annotated", "from typing import Any")
    return text.replace("-> tuple:", "-> tuple[Any, ...]:")


if __name__ == "__main__":
    STUB.write_text(generate())
