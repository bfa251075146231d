"""What a single setting may be: its type, its range, how it is written as text, its line of doc.

A section of the tree is a dataclass whose fields are declared with `choice` and `number`. Nothing
here knows a particular setting or where a value came from.
"""

import re
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

INT64_MAX = 2**63 - 1
# Milliseconds become microseconds, and those are stored in 64 bits with a sign.
MS_MAX = INT64_MAX // 1000

_UNITS = {"": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
# Nineteen digits are enough for 64 bits and too few for int() to be slow or to refuse.
_NUMBER = re.compile(r"(-?[0-9]{1,19}) ?([A-Za-z]*)")


def choice(default: str, doc: str) -> Any:
    """A field whose type is a Literal of words."""
    return field(default=default, metadata={"doc": doc})


def number(default: int | None, doc: str, *, lowest: int = 1, highest: int = INT64_MAX) -> Any:
    """A field whose type is `int`, or `int | None` for a limit that need not be there."""
    return field(default=default, metadata={"doc": doc, "lowest": lowest, "highest": highest})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, before anybody gave it a value."""

    name: str
    default: object
    doc: str
    choices: tuple[str, ...] = ()
    optional: bool = False
    lowest: int = 0
    highest: int = INT64_MAX

    @property
    def is_size(self) -> bool:
        """Sizes may be written with a unit. The name says that a number is one."""
        return "bytes" in self.name.split("_")

    def parse(self, raw: object) -> object:
        """The value that `raw` stands for, checked; a number may come as text.

        Raises ValueError with the reason as a clause.
        """
        value = self._parse_number(raw) if isinstance(raw, str) and not self.choices else raw
        self.check(value)
        return value

    def _parse_number(self, text: str) -> int | None:
        if self.optional and text == "none":
            return None
        match = _NUMBER.fullmatch(text)
        if match is None or (match[2] and not self.is_size):
            raise ValueError(f"{text!r} is not {self.expected}")
        if match[2] not in _UNITS:
            raise ValueError(f"{text!r} has an unknown unit: write KiB, MiB or GiB")
        return int(match[1]) * _UNITS[match[2]]

    def check(self, value: object) -> None:
        """Raise ValueError, with the reason as a clause, unless `value` is allowed."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"{value!r} is not {self.expected}")
            return
        if value is None and self.optional:
            return
        # To Python True is a 1, but whoever wrote it meant something else.
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{value!r} is not {self.expected}")
        if not self.lowest <= value <= self.highest:
            raise ValueError(f"{value} is not between {self.lowest} and {self.highest}")

    @property
    def expected(self) -> str:
        """What a value looks like, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = "a size such as 4096 or 64MiB" if self.is_size else "a whole number"
        return f"{kind}, or none" if self.optional else kind

    def text(self, value: object) -> str:
        """`value` as people write it; `parse` understands it."""
        if value is None:
            return "none"
        if isinstance(value, int) and self.is_size and value:
            unit = max((u for u in _UNITS if value % _UNITS[u] == 0), key=_UNITS.__getitem__)
            return f"{value // _UNITS[unit]} {unit}".rstrip()
        return str(value)


@cache
def settings_of(section: type) -> MappingProxyType[str, Setting]:
    """The settings that a section declares, by name, in order of declaration."""
    types = get_type_hints(section)
    return MappingProxyType(
        {
            each.name: Setting(
                name=each.name,
                default=each.default,
                choices=get_args(types[each.name]) if get_origin(types[each.name]) is Literal else (),
                optional=NoneType in get_args(types[each.name]),
                **each.metadata,
            )
            for each in fields(section)
        }
    )
