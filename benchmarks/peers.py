"""The operator beside its peers: `hypersimplex bench` from a checkout. Run with `python -m benchmarks.peers --help`."""

import typer

from hypersimplex.bench.command import bench

if __name__ == "__main__":
    typer.run(bench)
