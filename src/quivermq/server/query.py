"""What stands behind the question mark, and the numbers in a path, checked against what is documented."""

import re
from base64 import b64decode
from typing import Any

from quivermq.errors import InvalidRequest, NotFound
from quivermq.server.http import Request
from quivermq.server.routing import Parameter
from quivermq.topic.partition import LANES

# No sign but a minus, no underscores, no digits of other scripts: all of which int() would take.
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)

# Where a message lies: its partition, its lane and its offset. Lists go in this order.
Place = tuple[int, int, int]
PLACE_PATTERN = "^[0-9]{1,4}-[0-2]-[0-9]{1,19}$"
_PLACE = re.compile(r"([0-9]{1,4})-([0-2])-([0-9]{1,19})", re.ASCII)

PRIORITY = Parameter("priority", {"enum": list(LANES), "default": "normal"}, "Which lane of the partition.")


def number_parameter(
    name: str, doc: str, lowest: int, highest: int, default: int | None = None
) -> Parameter:
    """A whole number."""
    schema: dict[str, Any] = {"type": "integer", "minimum": lowest, "maximum": highest}
    if default is not None:
        schema["default"] = default
    return Parameter(name, schema, doc)


def number_given(request: Request, parameter: Parameter) -> int | None:
    """What was given for it; its default, if it has one, when nothing was. Raises InvalidRequest."""
    text, schema = request.query.get(parameter.name), parameter.schema
    if text is None:
        default: int | None = schema.get("default")
        return default
    lowest, highest = schema["minimum"], schema["maximum"]
    if not _NUMBER.fullmatch(text) or not lowest <= int(text) <= highest:
        raise InvalidRequest(
            f"{parameter.name} is a whole number from {lowest} to {highest}, not {text[:80]!r}"
        )
    return int(text)


def number_of(request: Request, parameter: Parameter) -> int:
    """The same, of a parameter that has a default."""
    number = number_given(request, parameter)
    assert number is not None, f"{parameter.name} has no default"
    return number


def bytes_parameters(name: str, doc: str) -> tuple[Parameter, Parameter]:
    """A text, and the same in base64, for bytes that are no text."""
    return (
        Parameter(name, {"type": "string"}, doc),
        Parameter(
            f"{name}_base64", {"type": "string", "format": "byte"}, f"In place of `{name}`: any bytes."
        ),
    )


def bytes_given(request: Request, name: str) -> bytes | None:
    """What was given in one of the two ways. Raises InvalidRequest."""
    text, base64 = request.query.get(name), request.query.get(f"{name}_base64")
    if base64 is None:
        return None if text is None else text.encode()
    if text is not None:
        raise InvalidRequest(f"there is a {name} or a {name}_base64, not both")
    try:
        return b64decode(base64, validate=True)
    except ValueError:
        raise InvalidRequest(f"{name}_base64 is not base64: {base64[:80]!r}") from None


def flag_of(request: Request, parameter: Parameter) -> bool:
    """A parameter that is true or false. Raises InvalidRequest."""
    text = request.query.get(parameter.name, "true" if parameter.schema["default"] else "false")
    if text not in ("true", "false"):
        raise InvalidRequest(f"{parameter.name} is true or false, not {text[:80]!r}")
    return text == "true"


def choice_of(request: Request, parameter: Parameter) -> str:
    """One of some words. Raises InvalidRequest."""
    choices: list[str] = parameter.schema["enum"]
    word: str = request.query.get(parameter.name, parameter.schema["default"])
    if word not in choices:
        raise InvalidRequest(f"{parameter.name} is one of {', '.join(choices)}, not {word[:80]!r}")
    return word


def partition_of(request: Request, partitions: int) -> int:
    """The partition in the path. Raises NotFound when the topic does not have it."""
    text = request.params["partition"]
    if not _NUMBER.fullmatch(text) or not 0 <= int(text) < partitions:
        raise NotFound(f"there is no partition {text[:20]}: the topic has {partitions}, the first one is 0")
    return int(text)


def place_after(request: Request) -> Place | None:
    """Behind which message a list goes on, given as PARTITION-LANE-OFFSET. Raises InvalidRequest."""
    text = request.query.get("after")
    if text is None:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"after is PARTITION-LANE-OFFSET of a message, like 0-1-17, not {text[:80]!r}")
    partition, lane, offset = map(int, found.groups())
    return partition, lane, offset
