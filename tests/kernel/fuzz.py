"""New problems and new nonsense for the kernel, for as long as asked: `make fuzz SECONDS=60`, again with SEED=.

In turn, on every instruction set: problems near the kernel's boundaries against the exact answer
(sweep.py), and arguments that make no sense (fuzz_kernel.py, fuzz_tensors.py).
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import time

ROUND = 20.0


def variants() -> list[str]:
    def runs(variant: str) -> bool:
        environment = {**os.environ, "HYPERSIMPLEX_SIMD": variant}
        return not subprocess.run(
            [sys.executable, "-c", "import hypersimplex"], env=environment, capture_output=True
        ).returncode

    return [variant for variant in ("baseline", "avx2", "avx512") if runs(variant)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    given = parser.parse_args()
    print(f"seed {given.seed}: repeat with make fuzz SECONDS={given.seconds:g} SEED={given.seed}", flush=True)
    rng, end = random.Random(given.seed), time.monotonic() + given.seconds
    for variant in itertools.cycle(variants()):
        left = end - time.monotonic()
        if left <= 0:
            return 0
        seed, seconds = str(rng.randrange(10**9)), f"{min(ROUND, left):.1f}"
        environment = {**os.environ, "HYPERSIMPLEX_SIMD": variant}
        for module, *arguments in (
            ["sweep", "--seed", seed, "--seconds", seconds],
            ["fuzz_kernel", seed],
            ["fuzz_tensors", seed],
        ):
            command = [sys.executable, "-X", "faulthandler", "-m", f"tests.kernel.{module}", *arguments]
            if subprocess.run(command, env=environment).returncode:
                print(f"FAILED: HYPERSIMPLEX_SIMD={variant} {' '.join(command[1:])}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
