"""Numbers, moments and keys in the words of a report."""

import math
from datetime import UTC, datetime

_KEY_CHARACTERS_MAX = 48
# The years 1 to 9999.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "G", "T")


def count_text(count: float) -> str:
    """A count with its thousands apart."""
    return f"{count:,.0f}".replace(",", "\u202f")


def short_count(count: float) -> str:
    """A count for an axis or a label: 1.2k, 3.4M."""
    unit = 0
    while abs(count) >= 999.5 and unit < len(_COUNT_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{_digits(count)}{_COUNT_UNITS[unit]}"


def bytes_text(size_bytes: float) -> str:
    """A size: 1.5 KiB."""
    unit = 0
    while size_bytes >= 1023.5 and unit < len(_BYTE_UNITS) - 1:
        size_bytes, unit = size_bytes / 1024, unit + 1
    return f"{_digits(size_bytes)} {_BYTE_UNITS[unit]}"


def duration_text(duration_us: float | None) -> str:
    """How long something took, in the unit that people would use."""
    if duration_us is None or math.isnan(duration_us):
        return "-"
    for unit_us, unit, next_us in (
        (1, "µs", 1000),
        (1000, "ms", 1_000_000),
        (1_000_000, "s", 60_000_000),
        (60_000_000, "min", 3_600_000_000),
        (3_600_000_000, "h", 86_400_000_000),
    ):
        if duration_us < next_us:
            return f"{_digits(duration_us / unit_us)} {unit}"
    return f"{_digits(duration_us / 86_400_000_000)} d"


def _digits(number: float) -> str:
    """Three digits that count, and no zeros behind a point."""
    if number == round(number) or abs(number) >= 99.95:
        return f"{number:.0f}"
    places = 1 if abs(number) >= 9.995 else 2
    return f"{number:.{places}f}".rstrip("0").rstrip(".")


def moment_text(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def second_text(second: float) -> str:
    """A unix second in UTC; the first or last one that there is a text for when it lies beyond."""
    return moment_text(datetime.fromtimestamp(min(max(second, _FIRST_S), _LAST_S), UTC))


def width_text(width_s: int) -> str:
    """How long one step of a time axis is."""
    for unit_s, unit in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if width_s >= unit_s:
            number = width_s // unit_s
            return unit if number == 1 else f"{number} {unit}s"
    return ""


def key_text(key: bytes) -> str:
    """A key as people can read it on one line: text where it is text, otherwise hexadecimal."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "0x" + key[:_KEY_CHARACTERS_MAX].hex()
    return line_text(text, _KEY_CHARACTERS_MAX)


def line_text(text: str, characters_max: int) -> str:
    """Text on one line: what cannot be printed is written out, and what is too long is cut."""
    shown = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text[: characters_max + 1])
    if not shown:
        return "(empty)"
    return shown if len(shown) <= characters_max else shown[: characters_max - 1] + "…"
