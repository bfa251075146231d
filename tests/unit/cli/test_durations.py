from datetime import UTC, datetime

import pytest

from quivermq.cli.durations import duration_ms, moment_text, parse_moment, parse_seconds
from quivermq.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5), ("2m", 120), ("1h", 3600), ("7d", 604800), ("1.5", 1.5), ("0", 0)],
)
def test_a_span_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 weeks", "-1s", "1e9", "٣s", "1s2", "9" * 16])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="500ms"):
        parse_seconds(text)


def test_a_number_alone_counts_in_the_unit_of_its_place() -> None:
    assert (duration_ms("5"), duration_ms("5", unit="ms"), duration_ms("5s", unit="ms")) == (5000, 5, 5000)


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31 12:00:00", "1769860800"],
)
def test_a_moment_without_a_zone_is_utc(text: str) -> None:
    assert parse_moment(text) == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "999999999999"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="moment"):
        parse_moment(text)


def test_a_moment_is_shown_in_utc() -> None:
    assert moment_text(1_769_860_800_123_456) == "2026-01-31 12:00:00.123Z"
    assert moment_text(2**62) == str(2**62)
