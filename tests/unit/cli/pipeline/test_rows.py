from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row

from quivermq.cli.pipeline.rows import as_json, cell, table_of


@dataclass(frozen=True)
class Summary:
    """What a job did, with rows as Spark gives them."""

    sample: list[dict[str, Any]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (b"tea", "tea"),
        (bytearray(b"a\nb"), "a\\nb"),
        ("line\nbreak", "line\\nbreak"),
        ("x" * 100, "x" * 79 + "…"),
        (1.5, "1.5"),
        (True, "True"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
        ([Row(key="a", value=b"1")], '[{"key": "a", "value": "1"}]'),
    ],
)
def test_a_cell_is_one_line(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (b"tea", "tea"),
        (b"\xff", {"base64": "/w=="}),
        # Spark hands out moments without a zone.
        (datetime(2026, 1, 31, 12, 0, 0, 5), "2026-01-31T12:00:00.000005Z"),  # noqa: DTZ001
        (date(2026, 1, 31), "2026-01-31"),
        (Decimal("1.10"), "1.10"),
        (float("nan"), None),
        ({1: b"a"}, {"1": "a"}),
        (Row(a=1, b=[None, True]), {"a": 1, "b": [None, True]}),
        ((1, 2.5), [1, 2.5]),
        (Summary([{"headers": [Row(key="a")]}]), {"sample": [{"headers": [{"key": "a"}]}]}),
    ],
)
def test_a_value_becomes_json(value: Any, document: object) -> None:
    assert as_json(value) == document


def test_rows_stand_under_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    table_of(["a", "b"], [(1, b"x"), (2, None)]).print()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert (lines[0], lines[-2], lines[-1]) == (["a", "b"], ["1", "x"], ["2", "-"])
