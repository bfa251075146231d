"""A call of the broker as a value, what may come of it, and flows made of calls."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from quivermq.model.json import JSON

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `path` is quoted already; `query` is not."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = JSON
    accept: str | None = None
    is_repeatable: bool = False
    """Whether it does no harm to send it again when nobody knows what became of it."""
    takes: tuple[int, ...] = ()
    """Statuses of 400 and more that are answers here, not errors."""
    wait_s: float = 0
    """How long the broker may take its time, because it was asked to wait for messages."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps_alive: bool = True


@dataclass(frozen=True, slots=True)
class Broken:
    """There was no answer. Unless the request `was_sent`, the broker knows nothing of it."""

    reason: str
    was_sent: bool


def reason_of(error: Exception) -> str:
    """What an exception says, for `Broken`. Some say nothing, and have only their name."""
    return str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before going on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Act:
    """Call something of the user's, and await what it returns where that can be done."""

    call: Callable[[], object]


Step: TypeAlias = Call | Pause | Act
Outcome: TypeAlias = Answer | Broken | None
Flow: TypeAlias = Generator[Step, Any, T]
RunFlow: TypeAlias = Callable[[Flow[Any]], Awaitable[Any]]
