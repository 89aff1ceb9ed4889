"""The results as tables, in the terminal and in the documentation."""

from __future__ import annotations

from pathlib import Path

from tools.mutants.mutant import AREAS, Mutant

Results = dict[str, dict[str, str]]
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


def _outcomes(mutants: list[Mutant], results: Results) -> list[str]:
    return [results.get(m.name, {}).get("outcome", "not run") for m in mutants]


def caught(mutants: list[Mutant], results: Results) -> int:
    return _outcomes(mutants, results).count("caught")


def summary(mutants: list[Mutant], results: Results) -> str:
    """Ours and a stranger's apart: what was missed of the latter at first says what the tests were worth."""
    titles = ["part", "our faults", "caught", "a stranger's", "missed at first", "caught now", "not run"]
    lines = [" | ".join(["", *titles, ""]).strip(), "| --- |" + " ---: |" * (len(titles) - 1)]
    for area, title in [*AREAS.items(), ("", "all")]:
        of_area = [m for m in mutants if area in ("", m.area)]
        own, blind = ([m for m in of_area if m.blind == stranger] for stranger in (False, True))
        outcomes = _outcomes(of_area, results)
        left = len(of_area) - sum(outcomes.count(word) for word in ("caught", "survived"))
        first = sum(m.missed for m in blind)
        numbers = [len(own), caught(own, results), len(blind), first, caught(blind, results), left]
        if of_area:
            lines.append(" | ".join([f"| {title}", *map(str, numbers)]) + " |")
    return "\n".join(lines)


def survivors(mutants: list[Mutant], results: Results) -> str:
    left = [m for m, found in zip(mutants, _outcomes(mutants, results), strict=True) if found == "survived"]
    if not left:
        return "None survived."
    return "\n".join(f"- `{m.file}`: `{m.old}` becomes `{m.new}`. {m.survives or 'Why is not known.'}" for m in left)


def write_page(page: Path, mutants: list[Mutant], results: Results) -> None:
    text = page.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    body = f"{summary(mutants, results)}\n\nSurvivors:\n\n{survivors(mutants, results)}"
    page.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}")
