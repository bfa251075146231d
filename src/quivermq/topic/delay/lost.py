"""What stands in for a delay store that cannot be opened, so that the lanes of its topic can."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import NoReturn

from quivermq.errors import StorageFailed
from quivermq.model.messages import Scheduled, Timeline
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.delay.message import Delayed
from quivermq.topic.delay.reading import DedupId


class LostDelays:
    """Has nothing, releases nothing, and tells everybody who asks for something why."""

    pending = 0
    size_bytes = 0
    next_due: int | None = None

    def __init__(self, error: StorageFailed) -> None:
        self.error = error

    def put(self, messages: Sequence[Delayed], durability: Durability | None = None) -> list[str | None]:
        """A delayed message has no place to wait."""
        self._refuse(messages, durability)

    def scheduled(
        self, limit: int | None = None, bytes_max: int | None = None, after: str | None = None
    ) -> list[Scheduled]:
        """Nobody knows what waits."""
        self._refuse(limit, bytes_max, after)

    def timeline(self, now_us: int, end_us: int | None, bins: int) -> Timeline:
        """Nobody knows what waits."""
        self._refuse(now_us, end_us, bins)

    def cancel(self, id: str) -> bool:  # noqa: A002 - That is what it is called everywhere.
        """Nobody knows what waits."""
        self._refuse(id)

    def clear(self) -> int:
        """Nobody knows what waits."""
        self._refuse()

    def deliver(self, id: str) -> NoReturn:  # noqa: A002 - As in cancel.
        """Nobody knows what waits."""
        self._refuse(id)

    def dedup_ids(self) -> Iterator[DedupId]:
        """None that could be told."""
        return iter(())

    def release(self, now_us: int) -> list[NoReturn]:
        """Nothing comes."""
        del now_us
        return []

    def sync(self) -> None:
        """There is nothing."""

    def configure(self, settings: StorageSettings) -> None:
        """There is nothing."""

    def close(self) -> None:
        """There is nothing."""

    def _refuse(self, *_: object) -> NoReturn:
        raise copy(self.error)
