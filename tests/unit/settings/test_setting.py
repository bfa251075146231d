from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.settings.setting import (
    INT64_MAX,
    FlagSetting,
    Setting,
    WeightsSetting,
    choice,
    flag,
    number,
    settings_of,
    weights,
)

SIZE = Setting(name="segment_bytes", default=1, doc="", lowest=1, highest=INT64_MAX)
SIZE_LIMIT = Setting(name="message_bytes_max", default=None, doc="", optional=True)
DURATION = Setting(name="linger_ms", default=5, doc="", lowest=0, highest=1000)
LIMIT = Setting(name="segments_max", default=None, doc="", optional=True, lowest=1, highest=9)
WORD = Setting(name="codec", default="none", doc="", choices=("none", "zstd"))
FLAG = FlagSetting(name="retention_force", default=False, doc="")
WEIGHTS = WeightsSetting(
    name="weights", default=(3, 1), doc="", parts=("first", "second"), lowest=1, highest=9
)


class Unshowable:
    def __repr__(self) -> str:
        raise AttributeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise TypeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


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
        (FLAG, True, True),
        (FLAG, False, False),
        (FLAG, "true", True),
        (FLAG, "false", False),
        (WEIGHTS, "strict", "strict"),
        (WEIGHTS, "9:1", (9, 1)),
        (WEIGHTS, [2, 1], (2, 1)),
        (WEIGHTS, (2, 1), (2, 1)),
        (WEIGHTS, {"second": 1, "first": 2}, (2, 1)),
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
        (DURATION, "5KiB", "unknown unit: write ms, s, m, h or d"),
        (DURATION, "1.5h", "is not a whole number of milliseconds, or such as 30s"),
        (LIMIT, "None", "is not a whole number, or none"),
        (LIMIT, "5KiB", "'5KiB' is not a whole number, or none"),
        (LIMIT, False, "False is not a whole number, or none"),
        (WORD, "ZSTD", "'ZSTD' is not one of none, zstd"),
        (WORD, None, "None is not one of none, zstd"),
        (WORD, ["zstd"], "is not one of none, zstd"),
        (FLAG, "True", "'True' is not one of true, false"),
        (FLAG, "yes", "'yes' is not one of true, false"),
        (FLAG, "", "'' is not one of true, false"),
        (FLAG, 1, "1 is not one of true, false"),
        (FLAG, None, "None is not one of true, false"),
        (WEIGHTS, "Strict", "'Strict',.* is not strict or a weight for each of first, second, such as 3:1"),
        (WEIGHTS, "", "is not strict or a weight for each"),
        (WEIGHTS, "1", "is not strict or a weight for each"),
        (WEIGHTS, "1:2:3", "is not strict or a weight for each"),
        (WEIGHTS, "1:x", "'1:x' is not strict or a weight for each"),
        (WEIGHTS, "1:2KiB", "'1:2KiB' is not strict"),
        (WEIGHTS, "1:0", "0 is not between 1 and 9"),
        (WEIGHTS, [10, 1], "10 is not between 1 and 9"),
        (WEIGHTS, [1, -1], "-1 is not between 1 and 9"),
        (WEIGHTS, [1, 1.0], "1.0 is not strict or a weight"),
        (WEIGHTS, [1, True], "True is not strict or a weight"),
        (WEIGHTS, [1, "1"], "'1' is not strict or a weight"),
        (WEIGHTS, [1, None], "None is not strict or a weight"),
        (WEIGHTS, [1, [1]], r"\[1\] is not strict or a weight"),
        (WEIGHTS, {"first": 1}, "{'first': 1} is not strict or a weight"),
        (WEIGHTS, {"first": 1, "second": 1, "third": 1}, "is not strict or a weight"),
        (WEIGHTS, {1: 1, None: 1}, "is not strict or a weight"),
        (WEIGHTS, b"ab", "b'ab' is not strict or a weight"),
        (WEIGHTS, None, "None is not strict or a weight"),
        (WEIGHTS, 5, "5 is not strict or a weight"),
    ],
)
def test_a_wrong_value_is_refused_with_a_reason(setting: Setting, raw: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        setting.parse(raw)


@pytest.mark.parametrize("setting", [SIZE, LIMIT, WORD, FLAG, WEIGHTS])
@pytest.mark.parametrize(
    "raw",
    [
        Unshowable(),
        [Unshowable()],
        pytest.param(10**9999, id="a number too long to write"),
        1.5,
        float("nan"),
        {},
        {"a": {}},
        [[]],
        b"",
        object,
        ...,
    ],
)
def test_nothing_but_a_value_error_comes_of_a_wrong_type(setting: Setting, raw: object) -> None:
    with pytest.raises(ValueError, match=r"is not (a|one|strict|between)") as caught:
        setting.parse(raw)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("setting", [SIZE, LIMIT, WORD, FLAG, WEIGHTS])
def test_the_reason_stays_short(setting: Setting) -> None:
    with pytest.raises(ValueError, match="is not") as caught:
        setting.parse("x" * 1_000_000)
    assert len(str(caught.value)) < 250


def test_a_field_says_what_its_setting_is() -> None:
    @dataclass(frozen=True)
    class Section:
        word: Literal["a", "b"] = choice("a", "A word.")
        size_bytes: int | None = number(None, "A size.", highest=9)
        on: bool = flag(True, "A flag.")
        turns: tuple[int, int] | Literal["strict"] = weights((2, 1), "Turns.", parts=("x", "y"), highest=5)

    assert list(settings_of(Section).values()) == [
        Setting("word", "a", "A word.", choices=("a", "b")),
        Setting("size_bytes", None, "A size.", optional=True, lowest=1, highest=9),
        FlagSetting("on", True, "A flag."),
        WeightsSetting("turns", (2, 1), "Turns.", lowest=1, highest=5, parts=("x", "y")),
    ]


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
        (FLAG, True, "true"),
        (FLAG, False, "false"),
        (WEIGHTS, (3, 1), "3:1"),
        (WEIGHTS, "strict", "strict"),
    ],
)
def test_a_value_is_written_for_people(setting: Setting, value: object, text: str) -> None:
    assert setting.text(value) == text


@given(st.integers(min_value=1, max_value=INT64_MAX))
def test_what_is_written_is_understood(value: int) -> None:
    assert SIZE.parse(SIZE.text(value)) == value
