"""Does this loss help on my data? A study compares losses over batch sizes and seeds.

`hypersimplex study run` is the front door; the parts are plain modules: `config` (what identifies a run), `data`,
`models`, `losses`, `train` (one training), `store` (SQLite), `engines`, `sweep` (the grid), `stats`, `report`.
"""

__version__ = "0.2.0"
