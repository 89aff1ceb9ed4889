"""Where a result comes from: versions, commit, machine."""

import os
import platform
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import hypersimplex
from hypersimplex_study.train import Runtime


@lru_cache
def commit() -> str | None:
    """Return the commit this package runs from, with "+" if files differ from it; None outside a git checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        # A package installed into some other project's environment must not claim that project's commit.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


@lru_cache
def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def provenance(runtime: Runtime, fingerprint: str, samples: dict[str, int]) -> dict[str, Any]:
    device = runtime.device
    if torch.device(device).type == "cuda":
        device = f"{device} ({torch.cuda.get_device_name(device)})"
    return {
        "hypersimplex": hypersimplex.__version__,
        "commit": commit(),
        "torch": torch.__version__,
        # Only where boosted trees were trained.
        "lightgbm": getattr(sys.modules.get("lightgbm"), "__version__", None),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{processor()}, {os.cpu_count()} threads",
        "device": device,
        "threads": runtime.threads or torch.get_num_threads(),
        "channels_last": runtime.channels_last,
        "compile": runtime.compile,
        "data": fingerprint,
        "samples": samples,
    }
