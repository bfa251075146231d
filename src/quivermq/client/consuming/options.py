"""What a consumer reads, and how."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from quivermq.errors import InvalidRequest
from quivermq.group.assignment import TopicPartition
from quivermq.model.checks import check_choice, check_number
from quivermq.model.names import Pattern, check_group_name, check_topic_name, is_pattern
from quivermq.settings import ClientSettings

Reset = Literal["earliest", "latest", "error"]
Strategy = Literal["range", "sticky", "cooperative"]
# With asyncio it may also be a coroutine function.
Callback = Callable[[list[TopicPartition]], object]

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """As `Connection.consumer` takes them. Raises InvalidRequest and InvalidName."""

    topics: list[str]
    group: str
    strategy: Strategy = "cooperative"
    auto_commit_ms: int | None = 5000
    reset: Reset = "earliest"
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    max_poll: int = 500
    session_timeout_ms: int = 30_000
    heartbeat_ms: int | None = None
    """By default a quarter of that."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise InvalidRequest("a consumer reads at least one topic")
        for name in self.topics:
            if is_pattern(name):
                Pattern(name)
            else:
                check_topic_name(name)
        check_group_name(self.group)
        check_choice("strategy", self.strategy, get_args(Strategy))
        check_choice("reset", self.reset, get_args(Reset))
        if self.auto_commit_ms is not None:
            check_number("auto_commit_ms", self.auto_commit_ms, 0, _HOUR_MS)
        check_number("max_poll", self.max_poll, 1, 100_000)
        check_number("session_timeout_ms", self.session_timeout_ms, 100, _HOUR_MS)
        if self.heartbeat_ms is not None:
            check_number("heartbeat_ms", self.heartbeat_ms, 10, _HOUR_MS)
            if self.heartbeat_ms >= self.session_timeout_ms:
                raise InvalidRequest(
                    f"heartbeat_ms is {self.heartbeat_ms} and must be less than session_timeout_ms,"
                    f" which is {self.session_timeout_ms}"
                )

    @property
    def beat_s(self) -> float:
        """How long from one heartbeat to the next."""
        return (self.heartbeat_ms or self.session_timeout_ms / 4) / 1000


def names_of(topics: str | Iterable[str]) -> list[str]:
    """A name or a list of names, as a list."""
    return [topics] if isinstance(topics, str) else list(topics)


def session_of(
    settings: ClientSettings, session_timeout_ms: int | None, heartbeat_ms: int | None
) -> tuple[int, int | None]:
    """After how long without a word a consumer has left, and how often it says one: as told, or as set."""
    return (
        settings.session_timeout_ms if session_timeout_ms is None else session_timeout_ms,
        settings.heartbeat_ms if heartbeat_ms is None else heartbeat_ms,
    )
