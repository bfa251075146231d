"""What a single setting may be: its type, its range, how it is written as text, its line of doc.

A section of the tree is a dataclass whose fields are declared with `choice`, `number`, `decimal`, `flag`,
`text`, `endpoint`, `path`, `place` and `weights`. Nothing here knows a particular setting or where a value
came from.
"""

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from pathlib import Path
from reprlib import Repr
from types import MappingProxyType, NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from quivermq.errors import QuiverError
from quivermq.settings.place import check_bucket, is_bucket

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

INT64_MAX = 2**63 - 1
# Milliseconds become microseconds, and those are stored in 64 bits with a sign.
MS_MAX = INT64_MAX // 1000

_UNITS = {"": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_PERIODS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Nineteen digits are enough for 64 bits and too few for int() to be slow or to refuse.
_NUMBER = re.compile(r"(-?[0-9]{1,19}) ?([A-Za-z]*)")

_DECIMAL = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,12})?")

# The word that stands for weights without a number: the next only once the one before has nothing.
STRICT = "strict"

_SHOWN = Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def choice(default: str, doc: str) -> Any:
    """A field whose type is a Literal of words."""
    return field(default=default, metadata={"doc": doc})


def number(default: int | None, doc: str, *, lowest: int = 1, highest: int = INT64_MAX) -> Any:
    """A field whose type is `int`, or `int | None` for a limit that need not be there."""
    return field(default=default, metadata={"doc": doc, "lowest": lowest, "highest": highest})


def flag(default: bool, doc: str) -> Any:
    """A field whose type is `bool`."""
    return field(default=default, metadata={"doc": doc, "kind": FlagSetting})


def text(default: str | None, doc: str, *, pattern: str, expected: str) -> Any:
    """A field whose type is `str`, or `str | None`, that looks like the pattern; `expected` says how."""
    metadata = {"doc": doc, "kind": TextSetting, "pattern": pattern, "looks": expected}
    return field(default=default, metadata=metadata)


def endpoint(doc: str) -> Any:
    """A field whose type is `str | None`: the address of a server."""
    return field(default=None, metadata={"doc": doc, "kind": EndpointSetting})


def path(doc: str) -> Any:
    """A field whose type is `Path | None`."""
    return field(default=None, metadata={"doc": doc, "kind": PathSetting})


def place(doc: str) -> Any:
    """A field whose type is `Path | str | None`: a directory, or the URL of a bucket."""
    return field(default=None, metadata={"doc": doc, "kind": PlaceSetting})


def decimal(default: float, doc: str, *, lowest: int, highest: int) -> Any:
    """A field whose type is `float`."""
    return field(
        default=default, metadata={"doc": doc, "kind": DecimalSetting, "lowest": lowest, "highest": highest}
    )


def weights(
    default: tuple[int, ...], doc: str, *, parts: tuple[str, ...], lowest: int = 1, highest: int
) -> Any:
    """A field whose type is a tuple with one `int` for each part, or `Literal["strict"]`."""
    return field(
        default=default,
        metadata={"doc": doc, "kind": WeightsSetting, "parts": parts, "lowest": lowest, "highest": highest},
    )


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

    @property
    def is_period(self) -> bool:
        """Spans of time are milliseconds, and may be written with a unit as well."""
        return "ms" in self.name.split("_")

    @property
    def units(self) -> Mapping[str, int]:
        """What may follow a number that is written as text, and what it stands for."""
        return _UNITS if self.is_size else _PERIODS_MS if self.is_period else {"": 1}

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
        match, units = _NUMBER.fullmatch(text), self.units
        if match is None or (match[2] and len(units) == 1):
            raise ValueError(f"{_shown(text)} is not {self.expected}")
        if match[2] not in units:
            raise ValueError(f"{_shown(text)} has an unknown unit: write {_listed([*units][1:])}")
        return int(match[1]) * units[match[2]]

    def check(self, value: object) -> None:
        """Raise ValueError, with the reason as a clause, unless `value` is allowed."""
        if self.choices:
            # Only words, because what else is compared with one may have an opinion of its own.
            if not isinstance(value, str) or value not in self.choices:
                raise ValueError(f"{_shown(value)} is not {self.expected}")
            return
        if value is None and self.optional:
            return
        self._check_number(value)

    def _check_number(self, value: object) -> None:
        # To Python True is a 1, but whoever wrote it meant something else.
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{_shown(value)} is not {self.expected}")
        if not self.lowest <= value <= self.highest:
            raise ValueError(f"{_shown(value)} is not between {self.lowest} and {self.highest}")

    @property
    def expected(self) -> str:
        """What a value looks like, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = "a size such as 4096 or 64MiB" if self.is_size else "a whole number"
        if self.is_period:
            kind += " of milliseconds, or such as 30s, 5m, 12h or 7d"
        return f"{kind}, or none" if self.optional else kind

    def text(self, value: object) -> str:
        """`value` as people write it; `parse` understands it."""
        if value is None:
            return "none"
        if isinstance(value, int) and self.is_size and value:
            unit = max((u for u in _UNITS if value % _UNITS[u] == 0), key=_UNITS.__getitem__)
            return f"{value // _UNITS[unit]} {unit}".rstrip()
        return str(value)


@dataclass(frozen=True, slots=True)
class FlagSetting(Setting):
    """A setting that is on or off."""

    choices: tuple[str, ...] = ("true", "false")

    def parse(self, raw: object) -> object:
        value = raw == "true" if isinstance(raw, str) and raw in self.choices else raw
        self.check(value)
        return value

    def check(self, value: object) -> None:
        if not isinstance(value, bool):
            raise ValueError(f"{_shown(value)} is not {self.expected}")

    def text(self, value: object) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class TextSetting(Setting):
    """A setting that is text of a certain look."""

    pattern: str = ".*"
    looks: str = ""

    def parse(self, raw: object) -> object:
        value = None if self.optional and raw == "none" else raw
        self.check(value)
        return value

    def check(self, value: object) -> None:
        if value is None and self.optional:
            return
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise ValueError(self._refusal(value))

    def _refusal(self, value: object) -> str:
        return f"{_shown(value)} is not {self.expected}"

    @property
    def expected(self) -> str:
        return f"{self.looks}, or none" if self.optional else self.looks


@dataclass(frozen=True, slots=True)
class EndpointSetting(TextSetting):
    """A setting that is the address of a server, without credentials."""

    pattern: str = r"https?://[^\s/@?#]+(/[^\s@?#]*)?"
    looks: str = "a URL such as https://s3.example.com or http://127.0.0.1:8333, without credentials"

    def _refusal(self, _: object) -> str:
        # It may have some, and is not repeated.
        return f"it is not {self.expected}"


@dataclass(frozen=True, slots=True)
class PathSetting(Setting):
    """A setting that is the path of a file or a directory, or none."""

    def parse(self, raw: object) -> object:
        value = None if raw == "none" else Path(raw) if isinstance(raw, str) and raw else raw
        self.check(value)
        return value

    def check(self, value: object) -> None:
        if value is not None and (not isinstance(value, Path) or "\0" in str(value)):
            raise ValueError(f"{_shown(value)} is not {self.expected}")

    @property
    def expected(self) -> str:
        return "a path, or none"


@dataclass(frozen=True, slots=True)
class PlaceSetting(PathSetting):
    """A setting that is where a queue is, or none."""

    def parse(self, raw: object) -> object:
        if not (isinstance(raw, str) and is_bucket(raw)):
            return PathSetting.parse(self, raw)
        try:
            return check_bucket(raw)
        except QuiverError as error:
            raise ValueError(str(error)) from None

    def check(self, value: object) -> None:
        if not (isinstance(value, str) and is_bucket(value)):
            PathSetting.check(self, value)
        else:
            self.parse(value)

    @property
    def expected(self) -> str:
        return "a path, a URL such as s3://bucket/prefix, or none"


@dataclass(frozen=True, slots=True)
class DecimalSetting(Setting):
    """A setting that is a number with or without a fraction."""

    def parse(self, raw: object) -> object:
        is_text = isinstance(raw, str) and _DECIMAL.fullmatch(raw) is not None
        is_whole = isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) <= INT64_MAX
        value: object = float(raw) if is_text or is_whole else raw  # type: ignore[arg-type]
        self.check(value)
        return value

    def check(self, value: object) -> None:
        if not isinstance(value, float):
            raise ValueError(f"{_shown(value)} is not {self.expected}")
        if not self.lowest <= value <= self.highest:
            raise ValueError(f"{_shown(value)} is not between {self.lowest} and {self.highest}")

    @property
    def expected(self) -> str:
        return f"a number such as {self.text(self.default)}"

    def text(self, value: object) -> str:
        return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class WeightsSetting(Setting):
    """How often each part has its turn, as a tuple in the order of the parts, or the word `strict`."""

    parts: tuple[str, ...] = ()

    def parse(self, raw: object) -> object:
        value = self._parse_weights(raw)
        self.check(value)
        return value

    def _parse_weights(self, raw: object) -> object:
        if isinstance(raw, str):
            if raw == STRICT:
                return raw
            matches = [_NUMBER.fullmatch(text) for text in raw.split(":")]
            return tuple(int(match[1]) if match and not match[2] else raw for match in matches)
        if isinstance(raw, Mapping) and set(raw) == set(self.parts):
            return tuple(raw[part] for part in self.parts)
        return tuple(raw) if isinstance(raw, list) else raw

    def check(self, value: object) -> None:
        if isinstance(value, str) and value == STRICT:
            return
        if not isinstance(value, tuple) or len(value) != len(self.parts):
            raise ValueError(f"{_shown(value)} is not {self.expected}")
        for weight in value:
            self._check_number(weight)

    @property
    def expected(self) -> str:
        return (
            f"{STRICT} or a weight for each of {', '.join(self.parts)}, such as {self.text(self.default)}"
        )

    def text(self, value: object) -> str:
        return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


@cache
def settings_of(section: type) -> MappingProxyType[str, Setting]:
    """The settings that a section declares, by name, in order of declaration."""
    types = get_type_hints(section)
    return MappingProxyType({each.name: _setting(each, types[each.name]) for each in fields(section)})


def _setting(declared: Field[Any], allowed: Any) -> Setting:
    """What the declaration of a field says, and its type."""
    described = dict(declared.metadata)
    kind: type[Setting] = described.pop("kind", Setting)
    if get_origin(allowed) is Literal:
        described["choices"] = get_args(allowed)
    optional = NoneType in get_args(allowed)
    return kind(name=declared.name, default=declared.default, optional=optional, **described)


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: object) -> str:
    """A value in an error: short, and whatever it is, because an error must not fail itself."""
    try:
        return _SHOWN.repr(value)
    except Exception:
        return f"this {type(value).__name__}"
