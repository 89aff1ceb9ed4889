"""The packages that an extra asks for, by the metadata of the installed library."""

import re


def packages_of(extra: str) -> list[str]:
    """Return what pip is to be told, each in the quotes of a shell; nothing where there is no metadata."""
    from importlib import metadata  # which takes long to import

    try:
        requirements = metadata.requires("hypersimplex") or []
    except metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for line in requirements:
        package, _, condition = (part.strip() for part in line.partition(";"))
        if extra not in re.findall(r"extra == ['\"]([\w-]+)['\"]", condition):
            continue
        own = re.fullmatch(r"hypersimplex\[(.*)\]", package)
        if own:
            for other in own[1].split(","):
                found += packages_of(other)
        else:
            rest = re.sub(r"( and )?extra == ['\"][\w-]+['\"]", "", condition)
            found.append(f"'{package}; {rest}'" if rest else f"'{package}'")
    return list(dict.fromkeys(found))
