"""Run the notebooks: `python docs/_tools/notebooks.py`. With --write, keep what they print."""

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def run(path: Path, folder: str) -> nbformat.NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": folder}},
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the time of day
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the outputs")
    parser.add_argument("names", nargs="*", help="notebooks by name; default: all")
    arguments = parser.parse_args()
    failed = 0
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if arguments.names and path.stem not in arguments.names:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                notebook = run(path, folder)
        except CellExecutionError as error:
            print(f"{path.name}: failed\n{error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{path.name}: ran", flush=True)
        if arguments.write:
            nbformat.write(notebook, path)
    return failed


if __name__ == "__main__":
    sys.exit(main())
