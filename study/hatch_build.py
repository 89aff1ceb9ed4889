"""Where pip finds the library: beside the study, if this is a checkout, and otherwise on an index."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Library(BuildHookInterface):  # type: ignore[type-arg]
    """`pip install ./study` then brings the library of the same checkout, and asks no index for its name.

    Not for an editable install, which `make` does together with an editable one of the library: pip takes the two ways
    to install one folder for a conflict. And not for what is released: a wheel that is built out of an sdist has no
    library beside it.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root).parent
        if version == "standard" and (library / "src" / "hypersimplex" / "_version.py").is_file():
            build_data["dependencies"].append(f"hypersimplex[torch] @ {library.as_uri()}")
