"""Messages that are known by a number: from it follows everything else about them.

Whoever reads one knows which it is and whether it is whole, and whoever has to put it again does the same.
"""

from random import Random
from typing import Any

from quivermq.chaos.expectation import expect

NUMBERS_PER_LIFE = 100_000


def value_of(number: int) -> bytes:
    """The value of a message."""
    name = b"%d:" % number
    return name + Random(name).randbytes(number % 5 * 40)


def number_in(value: bytes) -> int:
    """The number of a message. Raises Unkept when its value is not the one it was put with."""
    digits = value.partition(b":")[0]
    expect(
        digits.isdigit() and value == value_of(int(digits)), f"a value is not what was put: {value[:80]!r}"
    )
    return int(digits)


def key_of(number: int) -> bytes | None:
    return b"key %d" % (number % 3) if number % 4 else None


def options_of(number: int) -> dict[str, Any]:
    """How a message is put: every feature that a put has is somewhere among the numbers."""
    rng = Random(number)
    return {
        "key": key_of(number),
        "headers": {"number": b"%d" % number} if number % 5 == 0 else None,
        "priority": rng.choice(("normal", "normal", "high", "low")),
        "ttl": 10**6 if number % 7 == 0 else None,
        "delay": rng.choice((0.001, 0.01, 0.1)) if is_delayed(number) else None,
        "dedup_id": f"message {number}" if is_deduplicated(number) else None,
    }


def is_deduplicated(number: int) -> bool:
    """Whether it can be put again without harm."""
    return number % 3 == 0


def is_delayed(number: int) -> bool:
    return number % 5 == 1
