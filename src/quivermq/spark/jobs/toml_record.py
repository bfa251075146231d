"""Tables of TOML as dataclasses, with errors that say where in the file something is wrong."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from quivermq.errors import InvalidRequest


class TomlReader:
    """Takes tables of TOML to pieces, and knows how to say what is wrong with one."""

    def __init__(self, file: Path, choices: Mapping[tuple[str, str], tuple[str, ...]]) -> None:
        self._file = file
        self._choices = choices

    def error(self, where: str, key: str | None, reason: str) -> InvalidRequest:
        """What is wrong with a key of a table."""
        place = where if key is None else f"{where}: {key}"
        return InvalidRequest(f"{self._file}: {place} {reason}")

    def table(self, name: str, given: Any) -> Mapping[str, Any]:
        """A table that has to be there."""
        if not isinstance(given, Mapping):
            raise self.error(f"[{name}]", None, "is missing" if given is None else "is no table")
        return given

    def tables(self, document: Mapping[str, Any], name: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The tables of an array, each with how to call it."""
        given = document.get(name, [])
        if not isinstance(given, list):
            raise self.error(f"[{name}]", None, f"is written [[{name}]], because there may be many")
        return [(f"[[{name}]] {number}", self.table(name, each)) for number, each in enumerate(given, 1)]

    def check_keys(self, where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Raise InvalidRequest for a key that nobody knows, with the one that may be meant."""
        for key in given.keys() - set(known):
            close = get_close_matches(key, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise self.error(where, key, f"is not known: {hint}")

    def record(
        self,
        kind: type,
        table: str,
        where: str,
        given: Mapping[str, Any],
        parts: Mapping[str, Any] | None = None,
    ) -> Any:
        """A table as a dataclass, each key of the type of its field. `parts` are no keys of the table."""
        parts = parts or {}
        named = [each for each in fields(kind) if each.name not in parts]
        known = ["from" if each.name == "table" else each.name for each in named]
        self.check_keys(where, {name: 0 for name in given if name != "table"}, tuple(known))
        for each in named:
            if each.name not in given:
                if each.default is MISSING and each.default_factory is MISSING:
                    raise self.error(where, each.name, "is missing")
                continue
            self._check_type(where, table, each.name, each.type, given[each.name])
        return kind(**given, **parts)

    def _check_type(self, where: str, table: str, key: str, kind: Any, value: object) -> None:
        kinds = [each for each in get_args(kind) if each is not type(None)] if _is_union(kind) else [kind]
        if not any(_fits(each, value) for each in kinds):
            wanted = " or ".join(_WORDS[get_origin(each) or each] for each in kinds)
            raise self.error(where, key, f"is {wanted}, not {value!r:.80}")
        choices = self._choices.get((table, key))
        if choices is not None and value not in choices:
            raise self.error(where, key, f"is one of {', '.join(choices)}, not {value!r:.80}")


_WORDS = {str: "a text", int: "a whole number", list: "a list of texts", dict: "a table of texts"}


def _is_union(kind: Any) -> bool:
    return isinstance(kind, UnionType)


def _fits(kind: Any, value: object) -> bool:
    match get_origin(kind) or kind:
        case builtin if builtin is list:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case builtin if builtin is dict:
            return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
        case builtin if builtin is int:
            return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
