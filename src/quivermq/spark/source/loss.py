"""What happens when messages are gone that somebody wants to read: say so, or go on behind them."""

import logging
from collections.abc import Iterator

from quivermq.errors import OffsetOutOfRange, TopicNotFound
from quivermq.frame import Frame
from quivermq.spark.place import Lane, Place
from quivermq.topic.offsets import OffsetSet

logger = logging.getLogger(__name__)

_ADVICE = (
    "keep messages for longer (retention_ms, retention_bytes of the topic), read more often,"
    " or set the option failOnDataLoss to false to go on with what is left"
)


def gone(
    lane: Lane, start: int, end: int, *, held: tuple[int, int], what: str = "are gone"
) -> OffsetOutOfRange:
    """The error for offsets that were to be read and are not there."""
    error = OffsetOutOfRange(start, start=held[0], end=held[1])
    # With everything that its reader has to know; a traceback does not show fields.
    error.args = (
        f"offsets [{start}, {end}) of {lane} {what}: the log now holds [{held[0]}, {held[1]}); {_ADVICE}",
    )
    return error


class Strict:
    """A place in which a range that is not all there is an error that says what to do."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        try:
            yield from self._place.frames(lane, start, end)
        except OffsetOutOfRange as error:
            raise gone(lane, start, end, held=(error.start, error.end)) from None

    def removed(self, lane: Lane) -> OffsetSet:
        return self._place.removed(lane)


class Lenient:
    """A place in which what is gone is skipped, with a warning in the log of the executor."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        while start < end:
            try:
                for frame in self._place.frames(lane, start, end):
                    yield frame
                    start = max(start, frame.header.end_offset)
                return
            except OffsetOutOfRange as error:
                following = error.start if error.start > start else end
                logger.warning(
                    "%s",
                    gone(
                        lane, start, min(following, end), held=(error.start, error.end), what="are skipped"
                    ),
                )
                start = following
            except TopicNotFound as error:
                logger.warning("offsets [%d, %d) of %s are skipped: %s", start, end, lane, error)
                return

    def removed(self, lane: Lane) -> OffsetSet:
        return self._place.removed(lane)
