import json
from pathlib import Path

import fault_table
import pytest
from fault_table import BEGIN, END, PAGE, main, table, written

from quivermq.chaos.cases import CASES, FAULTS

RAN = [
    {
        "test": f"{fault.name}-{against}-{n}",
        "fault": fault.name,
        "against": against,
        "tried": 600,
        "outcome": "passed",
    }
    for fault in FAULTS
    for against in ("engine", "broker")
    for n in range(2)
]


def test_the_page_has_every_row_and_every_cell_says_something() -> None:
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    rows = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {f.happening}", f.promise] for f in FAULTS]
    for row in rows:
        *_, engine, broker = row.removesuffix(" |").split(" | ")
        assert "times" in engine + broker
        assert engine
        assert broker


def test_tests_and_times_are_added_up() -> None:
    first = table(RAN).splitlines()[2]
    assert first.endswith("| 2 tests, 1,200 times | 2 tests, 1,200 times |")


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = f"# Title\n\n{BEGIN}\n"
    once = written(page, "| a |")
    assert once == f"# Title\n\n{BEGIN}\n| a |\n{END}\n"
    assert written(once + "\nMore.\n", "| b |") == f"# Title\n\n{BEGIN}\n| b |\n{END}\n\nMore.\n"


def test_a_run_that_failed_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_table, "PAGE", tmp_path / "page.md")
    record = tmp_path / "record.json"
    record.write_text(json.dumps([*RAN, {**RAN[0], "test": "the bad one", "outcome": "failed"}]))
    with pytest.raises(SystemExit, match="the bad one"):
        main(str(record))


def test_every_fault_can_be_tried_by_a_user_and_every_case_is_of_one() -> None:
    assert {case.fault for case in CASES} == {fault.name for fault in FAULTS}
