import json
from pathlib import Path

import fault_table
import pytest
from fault_table import PAGE, TABLES, Table, main, rows_of, written

from quivermq.chaos.cases import CASES, FAULTS

every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
RAN = [
    {
        "test": f"{fault.name}-{against}-{n}",
        "fault": fault.name,
        "against": against,
        "tried": 600,
        "outcome": "passed",
    }
    for table in TABLES
    for fault in table.faults
    for against in table.columns
    for n in range(2)
]


@every_table
def test_the_page_has_every_row_and_every_cell_says_something(table: Table) -> None:
    page = PAGE.read_text()
    assert page.count(table.begin) == page.count(table.end) == 1
    rows = page.partition(table.begin)[2].partition(table.end)[0].strip().splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {fault.happening}", fault.promise] for fault in table.faults
    ]
    for row in rows:
        cells = row.removesuffix(" |").split(" | ")[2:]
        assert len(cells) == len(table.columns)
        assert all(cells)
        assert any("times" in cell for cell in cells)


@every_table
def test_tests_and_times_are_added_up(table: Table) -> None:
    first = rows_of(table, RAN).splitlines()[2]
    assert first.endswith(" | 2 tests, 1,200 times" * len(table.columns) + " |")


@every_table
def test_a_table_takes_the_place_of_the_one_before(table: Table) -> None:
    page = f"# Title\n\n{table.begin}\n"
    once = written(page, table, "| a |")
    assert once == f"# Title\n\n{table.begin}\n| a |\n{table.end}\n"
    assert written(once + "\nMore.\n", table, "| b |") == (
        f"# Title\n\n{table.begin}\n| b |\n{table.end}\n\nMore.\n"
    )


def test_every_fault_is_in_one_table() -> None:
    assert [fault for table in TABLES for fault in table.faults] == FAULTS


def test_a_run_that_failed_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_table, "PAGE", tmp_path / "page.md")
    record = tmp_path / "record.json"
    record.write_text(json.dumps([*RAN, {**RAN[0], "test": "the bad one", "outcome": "failed"}]))
    with pytest.raises(SystemExit, match="the bad one"):
        main(str(record))


def test_every_fault_can_be_tried_by_a_user_and_every_case_is_of_one() -> None:
    assert {case.fault for case in CASES} == {fault.name for fault in FAULTS}
