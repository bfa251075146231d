import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.settings.setting import INT64_MAX, Setting

SIZE = Setting(name="segment_bytes", default=1, doc="", lowest=1, highest=INT64_MAX)
SIZE_LIMIT = Setting(name="message_bytes_max", default=None, doc="", optional=True)
DURATION = Setting(name="linger_ms", default=5, doc="", lowest=0, highest=1000)
LIMIT = Setting(name="segments_max", default=None, doc="", optional=True, lowest=1, highest=9)
WORD = Setting(name="codec", default="none", doc="", choices=("none", "zstd"))


@pytest.mark.parametrize(
    ("setting", "raw", "value"),
    [
        (SIZE, 4096, 4096),
        (SIZE, "4096", 4096),
        (SIZE, "10 KiB", 10 * 1024),
        (SIZE, "64MiB", 64 * 1024**2),
        (SIZE, "3GiB", 3 * 1024**3),
        (SIZE_LIMIT, "2MiB", 2 * 1024**2),
        (SIZE_LIMIT, "none", None),
        (DURATION, "0", 0),
        (DURATION, 1000, 1000),
        (LIMIT, None, None),
        (LIMIT, "none", None),
        (LIMIT, 9, 9),
        (WORD, "none", "none"),
        (WORD, "zstd", "zstd"),
    ],
)
def test_a_value_is_understood(setting: Setting, raw: object, value: object) -> None:
    assert setting.parse(raw) == value


@pytest.mark.parametrize(
    ("setting", "raw", "reason"),
    [
        (SIZE, 0, "0 is not between 1 and"),
        (SIZE, "-5KiB", "-5120 is not between 1 and"),
        (SIZE, "64MB", "unknown unit: write KiB, MiB or GiB"),
        (SIZE, "64mib", "unknown unit: write KiB, MiB or GiB"),
        (SIZE, "64 M", "unknown unit"),
        (SIZE, "1.5MiB", "is not a size"),
        (SIZE, "64  MiB", "is not a size"),
        (SIZE, "MiB", "is not a size"),
        (SIZE, "", "is not a size"),
        (SIZE, "1_000", "is not a size"),
        (SIZE, "٣", "is not a size"),
        (SIZE, "9" * 5000, "is not a size"),
        (SIZE, "9999999999GiB", "is not between"),
        (SIZE, "none", "is not a size"),
        (SIZE, None, "None is not a size"),
        (SIZE, True, "True is not a size"),
        (SIZE, 1.0, "1.0 is not a size"),
        (SIZE, [1], r"\[1\] is not a size"),
        (DURATION, 1001, "1001 is not between 0 and 1000"),
        (DURATION, -1, "-1 is not between 0 and 1000"),
        (DURATION, "5KiB", "is not a whole number"),
        (DURATION, "5ms", "is not a whole number"),
        (LIMIT, "None", "is not a whole number, or none"),
        (LIMIT, False, "False is not a whole number, or none"),
        (WORD, "ZSTD", "'ZSTD' is not one of none, zstd"),
        (WORD, None, "None is not one of none, zstd"),
        (WORD, ["zstd"], "is not one of none, zstd"),
    ],
)
def test_a_wrong_value_is_refused_with_a_reason(setting: Setting, raw: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        setting.parse(raw)


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        (SIZE, 64 * 1024**2, "64 MiB"),
        (SIZE, 4096, "4 KiB"),
        (SIZE, 1000, "1000"),
        (SIZE, 2 * 1024**4, "2048 GiB"),
        (DURATION, 1024, "1024"),
        (LIMIT, None, "none"),
        (WORD, "zstd", "zstd"),
    ],
)
def test_a_value_is_written_for_people(setting: Setting, value: object, text: str) -> None:
    assert setting.text(value) == text


@given(st.integers(min_value=1, max_value=INT64_MAX))
def test_what_is_written_is_understood(value: int) -> None:
    assert SIZE.parse(SIZE.text(value)) == value
