"""Writes the tables of faults in docs/concepts/guarantees.md from what a run of the tests left.

`make faults` runs them with `--fault-record`, and then this. A run in which one failed writes nothing.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from quivermq.chaos.cases import FILE_FAULTS, STORE_FAULTS, Against, Fault

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/concepts/guarantees.md"


class Table(NamedTuple):
    """Rows of the page, and a column for each of what they are tried against."""

    name: str
    faults: list[Fault]
    columns: dict[Against, str]

    @property
    def begin(self) -> str:
        return f"<!-- {self.name} -->"

    @property
    def end(self) -> str:
        return f"<!-- end of the {self.name} -->"


TABLES = [
    Table("fault table", FILE_FAULTS, {"engine": "against the engine", "broker": "against a broker"}),
    Table("table of store faults", STORE_FAULTS, {"bucket": "on a bucket", "cluster": "on a cluster"}),
]

# Why a row has nothing to show in a column.
_ELSEWHERE = {
    ("soak", "engine"): "through the broker",
    **{(fault, "bucket"): "without a cluster" for fault in ("etcd", "partition", "rolling", "skew")},
    ("unsafe", "cluster"): "etcd decides there",
}


def rows_of(table: Table, ran: Iterable[dict[str, Any]]) -> str:
    """The rows, with how many tests there are for each and how often they did it."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in ran:
        found.setdefault((each["fault"], each["against"]), []).append(each)
    lines = [
        f"| fault | what must hold | {' | '.join(table.columns.values())} |",
        "|---" * (2 + len(table.columns)) + "|",
    ]
    for fault in table.faults:
        cells = " | ".join(_cell(fault.name, against, found) for against in table.columns)
        lines.append(f"| {fault.happening} | {fault.promise} | {cells} |")
    return "\n".join(lines)


def _cell(fault: str, against: Against | str, found: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    tests = found.get((fault, against), [])
    if not tests:
        return _ELSEWHERE[fault, against]
    times = sum(test["tried"] for test in tests)
    return f"{len(tests)} test{'s' * (len(tests) > 1)}, {times:,} times"


def written(page: str, table: Table, rows: str) -> str:
    """The page with these rows in place of those it has."""
    head, _, rest = page.partition(table.begin)
    tail = rest.partition(table.end)[2] if table.end in rest else rest
    return f"{head}{table.begin}\n{rows}\n{table.end}{tail.rstrip()}\n"


def main(record: str) -> None:
    ran = json.loads(Path(record).read_text())
    failed = [each["test"] for each in ran if each["outcome"] != "passed"]
    if failed:
        sys.exit(f"nothing is written, because these failed: {', '.join(failed)}")
    page = PAGE.read_text()
    for table in TABLES:
        page = written(page, table, rows_of(table, ran))
    PAGE.write_text(page)
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1])
