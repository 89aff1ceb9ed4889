"""What each extra takes on disk, out of the environment this runs in: `.venv-all/bin/python -m tools.extra_sizes`."""

import re
import sys
from importlib import metadata
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
MEGABYTE = 10**6


def size(name: str) -> int:
    """The bytes of one package's files, without what Python compiles of them."""
    files = [file.locate() for file in metadata.files(name) or () if file.suffix != ".pyc"]
    return sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file())


def needed(line: str, found: set[str], missing: set[str]) -> None:
    """Add to `found` the package that a requirement names, and those that it needs in turn."""
    requirement = Requirement(line)
    name = re.sub(r"[-_.]+", "-", requirement.name).lower()
    if name == "hypersimplex" or name in found or (requirement.marker and not requirement.marker.evaluate()):
        return
    try:
        wanted = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        missing.add(name)
        return
    found.add(name)
    for inner in map(Requirement, wanted):
        if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
            inner.marker = None
            needed(str(inner), found, missing)


def lines(extras: dict[str, list[str]], extra: str) -> list[str]:
    """The requirements of an extra, with those of the extras it names."""
    out = []
    for line in extras[extra]:
        requirement = Requirement(line)
        inner = requirement.extras if requirement.name == "hypersimplex" else ()
        out += [found for name in inner for found in lines(extras, name)] if inner else [line]
    return out


def main() -> None:
    project, study = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in ("", "study")
    )
    extras = project["optional-dependencies"]
    extras["./study"] = study["dependencies"]
    extras["./study[ray]"] = [*study["dependencies"], *study["optional-dependencies"]["ray"]]
    for extra in ("", *extras):
        found: set[str] = set()
        missing: set[str] = set()
        for line in [*project["dependencies"], *(lines(extras, extra) if extra else ())]:
            needed(line, found, missing)
        absent = f"; not installed here: {', '.join(sorted(missing))}" if missing else ""
        print(f"{extra or 'none':12} {sum(map(size, found)) / MEGABYTE:7.0f} MB{absent}")


if __name__ == "__main__":
    main()
