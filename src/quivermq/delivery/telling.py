"""Telling the log of dead letters: at once of the first, and of many that follow in one line a second."""

import logging
from collections.abc import Sequence

from quivermq.delivery.dead_letters import Origin

logger = logging.getLogger(__name__)

_PAUSE_US = 1_000_000
_EXAMPLES = 3
_OFFSETS_KEPT = 100


class BurialNews:
    """What became dead letters and was not told yet. Whoever calls holds the lock of the partition."""

    def __init__(self) -> None:
        self._told_us: int | None = None
        self._count = 0
        self._offsets: list[int] = []
        self._origin: Origin | None = None

    def add(self, origin: Origin, offsets: Sequence[int], now_us: int) -> None:
        """Note dead letters, and tell of them unless others were told of a moment ago."""
        self._origin = origin
        self._count += len(offsets)
        self._offsets += offsets[: _OFFSETS_KEPT - len(self._offsets)]
        self.tell(now_us)

    def tell(self, now_us: int, *, is_last: bool = False) -> None:
        """Tell what was not told, if there is something and it is time."""
        is_time = self._told_us is None or not self._told_us <= now_us < self._told_us + _PAUSE_US
        if not self._count or not (is_time or is_last):
            return
        origin = self._origin
        assert origin is not None, "who adds says where they came from"
        examples = ", ".join(map(str, self._offsets[:_EXAMPLES]))
        logger.warning(
            "dead letters of %s: %d more%s",
            origin.topic,
            self._count,
            ""
            if self._count <= _EXAMPLES
            else f", such as offsets {examples} of partition {origin.partition}",
            extra={
                "topic": origin.topic,
                "partition": origin.partition,
                "group": origin.group,
                "offsets": self._offsets,
            },
        )
        self._told_us, self._count, self._offsets = now_us, 0, []
