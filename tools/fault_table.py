"""Writes the table of faults in docs/concepts/guarantees.md from what a run of the tests left.

`make faults` runs them with `--fault-record`, and then this. A run in which one failed writes nothing.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from quivermq.chaos.cases import FAULTS, Against

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/concepts/guarantees.md"
BEGIN, END = "<!-- fault table -->", "<!-- end of the fault table -->"

# Why a row has nothing to show in a column.
_ELSEWHERE = {("soak", "engine"): "through the broker"}


def table(ran: Iterable[dict[str, Any]]) -> str:
    """The rows, with how many tests there are for each and how often they did it."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in ran:
        found.setdefault((each["fault"], each["against"]), []).append(each)
    lines = [
        "| fault | what must hold | against the engine | against a broker |",
        "|---|---|---|---|",
    ]
    for fault in FAULTS:
        engine, broker = (_cell(fault.name, against, found) for against in ("engine", "broker"))
        lines.append(f"| {fault.happening} | {fault.promise} | {engine} | {broker} |")
    return "\n".join(lines)


def _cell(fault: str, against: Against | str, found: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    tests = found.get((fault, against), [])
    if not tests:
        return _ELSEWHERE[fault, against]
    times = sum(test["tried"] for test in tests)
    return f"{len(tests)} test{'s' * (len(tests) > 1)}, {times:,} times"


def written(page: str, rows: str) -> str:
    """The page with these rows in place of those it has."""
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2] if END in rest else rest
    return f"{head}{BEGIN}\n{rows}\n{END}{tail.rstrip()}\n"


def main(record: str) -> None:
    ran = json.loads(Path(record).read_text())
    failed = [each["test"] for each in ran if each["outcome"] != "passed"]
    if failed:
        sys.exit(f"nothing is written, because these failed: {', '.join(failed)}")
    PAGE.write_text(written(PAGE.read_text(), table(ran)))
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1])
