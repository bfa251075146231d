"""Rows of Spark for people and for programs."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from quivermq.cli.output import TextTable, shown
from quivermq.model.json import base64_text

_CELL_LENGTH_MAX = 80


def table_of(columns: list[str], rows: Iterable[Iterable[Any]]) -> TextTable:
    """A table, in which bytes are text as far as they can be."""
    return TextTable(columns, [[cell(value) for value in row] for row in rows])


def cell(value: object) -> str:
    """A value on one line, and not too long."""
    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        return shown(bytes(value), _CELL_LENGTH_MAX)
    if isinstance(value, str):
        return shown(value.encode(errors="replace"), _CELL_LENGTH_MAX)
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, list | tuple | dict):
        return shown(json.dumps(as_json(value), ensure_ascii=False).encode(), _CELL_LENGTH_MAX)
    return str(value)


def as_json(value: Any) -> Any:
    """A value as JSON has it; bytes that are no text become {"base64": …}."""
    match value:
        case bytes() | bytearray():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64_text(value)}
        case datetime():
            return moment(value)
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(as_json(name)): as_json(item) for name, item in value.items()}
        case _ if is_dataclass(value):
            # Not `asdict`, which copies a row without the names of its columns.
            return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
        case _ if hasattr(value, "asDict"):
            return as_json(value.asDict())
        case list() | tuple():
            return [as_json(item) for item in value]
        case bool() | int() | float() | str() | None:
            return value
    return str(value)


def moment(value: datetime) -> str:
    """Spark hands out the local time of its session, which is UTC, without saying so."""
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat().replace("+00:00", "Z")
