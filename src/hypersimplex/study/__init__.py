"""Does this loss help on my data? A study compares losses over batch sizes and seeds.

`hypersimplex study run` is the front door; the parts are plain modules: `config` (what identifies a run), `data`,
`models`, `losses`, `train` (one training), `store` (SQLite), `engines`, `sweep` (the grid), `stats`, `report`.
"""

from importlib.util import find_spec as _find_spec

from hypersimplex._checks import missing as _missing

# Found, not imported: looking at a store must not wait for torch.
for _name in ("jinja2", "matplotlib", "rich", "scipy", "sklearn", "torch"):
    if _find_spec(_name) is None:
        raise _missing("hypersimplex.study", _name, "study")
