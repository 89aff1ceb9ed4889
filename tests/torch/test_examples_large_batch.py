"""The examples of large batches run as their first lines say, and print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
pytest.importorskip("sklearn")


def run(*command):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchrun_with_two_ranks():
    script = EXAMPLES / "torchrun_two_ranks.py"
    out = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, script)
    # The ranks share one standard output, and their lines may run into each other.
    found = re.findall(r"rank (\d): (loss [\d.]+), (accuracy [\d.]+), (thresholds -?[\d.]+)", out)
    assert sorted(rank for rank, *_ in found) == ["0", "1"]
    assert found[0][1:] == found[1][1:], "both ranks end alike"
    assert float(found[0][2].split()[1]) > 0.9


def test_chunks():
    accuracy, exact, naive = (float(line.split()[-1]) for line in run(EXAMPLES / "chunks.py").splitlines())
    assert exact < 1e-4
    assert naive > 0.1
    assert accuracy > 0.85


def test_scripts_end_before_a_late_thread_of_gloo_can_abort_them():
    """See docs/large-batches.md."""
    pages = [*EXAMPLES.rglob("*.py"), *(EXAMPLES.parent / "docs").rglob("*.ipynb")]
    found = [page for page in pages if "init_process_group(" in page.read_text()]
    assert {page.name for page in found} >= {"torchrun_two_ranks.py", "two-ranks.ipynb"}
    for page in found:
        text = page.read_text()
        # A pool ends its workers by a signal when its block is left.
        by_signal = "Pool(RANKS) as pool:" in text
        assert by_signal or "os._exit(0)" in text.partition("destroy_process_group()")[2], page.name
