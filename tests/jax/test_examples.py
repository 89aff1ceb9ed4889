"""The example learns, and its thresholds are what makes its decisions right."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_digits_are_learned():
    main = runpy.run_path(str(EXAMPLES / "jax_digits.py"))["main"]
    with_thresholds, without = main()
    assert with_thresholds > 0.95
    assert with_thresholds >= without
