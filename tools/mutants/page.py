"""The results as a table, in the terminal and in the documentation."""

from __future__ import annotations

from pathlib import Path

from tools.mutants.mutant import AREAS, Mutant

Results = dict[str, dict[str, str]]
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


def _outcomes(mutants: list[Mutant], results: Results) -> list[str]:
    return [results.get(m.name, {}).get("outcome", "not run") for m in mutants]


def summary(mutants: list[Mutant], results: Results) -> str:
    lines = ["| part | faults | caught | survived | not run |", "| --- | --- | --- | --- | --- |"]
    for area, title in [*AREAS.items(), ("", "all")]:
        found = _outcomes([m for m in mutants if area in ("", m.area)], results)
        counts = [found.count(word) for word in ("caught", "survived")]
        if found:
            lines.append(f"| {title} | {len(found)} | {counts[0]} | {counts[1]} | {len(found) - sum(counts)} |")
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
