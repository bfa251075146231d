"""Messages of one lane on their way into a frame, and what their sender can ask about them."""

from quivermq.errors import QuiverError, Unavailable
from quivermq.frame import AnyCodec, EntryFields, Producer, encode
from quivermq.helping import Condition
from quivermq.log.entries import NOTHING
from quivermq.model.checks import Period, seconds_of
from quivermq.model.lanes import Priority
from quivermq.model.messages import Put
from quivermq.reentry import entered

# A partition and a priority.
Lane = tuple[int, Priority]


class ProducerBatch:
    """What becomes one frame. The producer's lock guards it until it is taken."""

    __slots__ = ("born_at", "born_us", "bytes", "error", "is_due", "lane", "put", "rests", "values")

    def __init__(self, lane: Lane, born_at: float, born_us: int) -> None:
        self.lane = lane
        self.born_at = born_at
        self.born_us = born_us
        self.values: list[bytes] = []
        # Most messages are just a value; the others have their keys and headers here, by their place.
        self.rests: dict[int, EntryFields] = {}
        self.bytes = 0
        self.is_due = False
        self.put: Put | None = None
        self.error: QuiverError | None = None

    @property
    def is_done(self) -> bool:
        return self.put is not None or self.error is not None

    def place_of(self, index: int) -> Put:
        """Where the message of that place is, once this is done. Raises what kept it from being stored."""
        if self.error is not None:
            raise self.error
        put = self.put
        assert put is not None, "ask when it is done"
        assert put.offset is not None, "a frame is never delayed"
        return put._replace(offset=put.offset + index)

    def encoded(self, producer: Producer, codec: AnyCodec, ttl_ms: int | None) -> bytes:
        """The frame. The same producer makes the same bytes of it each time."""
        count, rests = len(self.values), self.rests
        rows = [rests.get(i, NOTHING) for i in range(count)] if rests else []
        expires_at = None if ttl_ms is None else [self.born_us + ttl_ms * 1000] * count
        return bytes(
            encode(
                self.values,
                timestamp=self.born_us,
                keys=[row.key for row in rows] if rests else None,
                headers=[row.headers for row in rows] if rests else None,
                expires_at=expires_at,
                codec=codec,
                producer=producer,
            )
        )


class Sent:
    """What `send` returns: where the message is, once that is known."""

    __slots__ = ("_batch", "_index", "_news")

    def __init__(self, batch: ProducerBatch, index: int, news: Condition) -> None:
        self._batch = batch
        self._index = index
        self._news = news

    def done(self) -> bool:
        """Whether it was stored, or given up."""
        return self._batch.is_done

    @entered
    def result(self, timeout: Period | None = None) -> Put:
        """Where it is. Raises what kept it from being stored, and Unavailable after `timeout` seconds."""
        batch = self._batch
        wait_s = None if timeout is None else seconds_of("timeout", timeout, lowest=0)
        with self._news.lock:
            if not self._news.wait_for(lambda: batch.is_done, wait_s):
                raise Unavailable(f"the message is still on its way after {wait_s:g} seconds")
        return batch.place_of(self._index)

    def exception(self, timeout: Period | None = None) -> QuiverError | None:
        """What kept it from being stored, or None."""
        try:
            self.result(timeout)
        except QuiverError as error:
            return error
        return None
