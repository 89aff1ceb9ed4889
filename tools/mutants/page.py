"""The results as tables, in the terminal and in the documentation."""

from __future__ import annotations

from pathlib import Path

from tools.mutants.mutant import AREAS, Mutant

Results = dict[str, dict[str, str]]
Row = list[str]
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
TITLES = ["part", "our faults", "caught", "a stranger's", "missed at first", "caught now", "not run", "commit"]
OURS, STRANGERS, LEFT, COMMIT = 1, 3, 6, 7  # columns


def _outcomes(mutants: list[Mutant], results: Results) -> list[str]:
    return [results.get(m.name, {}).get("outcome", "not run") for m in mutants]


def caught(mutants: list[Mutant], results: Results) -> int:
    return _outcomes(mutants, results).count("caught")


def _row(title: str, mutants: list[Mutant], results: Results, commit: str) -> Row:
    own, blind = ([m for m in mutants if m.blind == stranger] for stranger in (False, True))
    outcomes = _outcomes(mutants, results)
    left = len(mutants) - sum(outcomes.count(word) for word in ("caught", "survived"))
    first = sum(m.missed for m in blind)
    numbers = [len(own), caught(own, results), len(blind), first, caught(blind, results), left]
    return [title, *map(str, numbers), commit if left < len(mutants) else ""]


def _tried(row: Row) -> int:
    return int(row[OURS]) + int(row[STRANGERS]) - int(row[LEFT])


def _rows(mutants: list[Mutant], results: Results, commit: str, before: dict[str, Row]) -> list[Row]:
    """A row for each part, of the run that tried more of its faults: of this one, or of the one on the page."""
    rows = []
    for area, title in AREAS.items():
        if of_area := [m for m in mutants if m.area == area]:
            row, old = _row(title, of_area, results, commit), before.get(title)
            rows.append(old if old and _tried(old) > _tried(row) else row)
    sums = [sum(int(row[i]) for row in rows) for i in range(OURS, COMMIT)]
    return [*rows, ["all", *map(str, sums), ""]]


def _table(rows: list[Row]) -> str:
    lines = ["| " + " | ".join(TITLES) + " |", "| --- |" + " ---: |" * (len(TITLES) - 2) + " --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)])


def summary(mutants: list[Mutant], results: Results, commit: str = "") -> str:
    """Ours and a stranger's apart: what was missed of the latter at first says what the tests were worth."""
    return _table(_rows(mutants, results, commit, {}))


def _survivor(mutant: Mutant) -> str:
    return f"- `{mutant.file}`: `{mutant.old}` becomes `{mutant.new}`."


def survivors(mutants: list[Mutant], results: Results) -> str:
    left = [m for m, found in zip(mutants, _outcomes(mutants, results), strict=True) if found == "survived"]
    if not left:
        return "None survived."
    return "\n".join(f"{_survivor(m)} {m.survives or results[m.name].get('since', 'Why is not known.')}" for m in left)


def write_page(page: Path, mutants: list[Mutant], results: Results, commit: str) -> None:
    text = page.read_text()
    head, rest = text.split(BEGIN)
    body, tail = rest.split(END)
    lines = body.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    rows = _rows(mutants, results, commit, {row[0]: row for row in cells[1:] if len(row) == len(TITLES)})
    kept = {row[0] for row in rows if row in cells}
    # Of a part whose row stays, the survivors stay too.
    told = {_survivor(m) for m in mutants if AREAS[m.area] in kept}
    known = {m.name: {"outcome": "survived"} for m in mutants for line in lines if line.startswith(_survivor(m))}
    for name in known:
        if results.get(name, {}).get("outcome") == "caught":
            known[name]["since"] = "A test was written since."
    results = {m.name: (known if _survivor(m) in told else results).get(m.name, {}) for m in mutants}
    body = f"{_table(rows)}\n\nSurvivors:\n\n{survivors(mutants, results)}"
    page.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}")
