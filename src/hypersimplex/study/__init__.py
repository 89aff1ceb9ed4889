"""Does this loss help on my data? A study compares losses over batch sizes and seeds.

`hypersimplex study run` is the front door; the parts are plain modules: `config` (what identifies a run), `data`,
`models`, `losses`, `train` (one training), `store` (SQLite), `engines`, `sweep` (the grid), `stats`, `report`.
"""

try:
    import jinja2 as _jinja2  # noqa: F401
    import matplotlib as _matplotlib  # noqa: F401
    import rich as _rich  # noqa: F401
    import scipy as _scipy  # noqa: F401
    import sklearn as _sklearn  # noqa: F401
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"hypersimplex.study needs {error.name}; install it with: pip install 'hypersimplex[study]'"
    ) from error
