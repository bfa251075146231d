"""A broker, read over HTTP: the frames of its logs as they are stored, and those of its archive."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quivermq.client.blocking.connection import Connection, connect
from quivermq.client.core.logs import FramePage, LogCalls
from quivermq.client.core.wire import decoded, path_of
from quivermq.errors import GroupNotFound, NotFound, OffsetOutOfRange, TopicNotFound
from quivermq.frame import Frame
from quivermq.spark.place import (
    DeliveryRow,
    GroupRow,
    Lane,
    LaneBounds,
    SegmentRow,
    TopicView,
    delivery_row,
)
from quivermq.topic.names import usual_origin
from quivermq.topic.offsets import OffsetSet
from quivermq.topic.partition import LANE_NUMBERS
from quivermq.topic.settings import TopicSettings

# What a message takes where nothing is live by which to tell; only the number of tasks depends on it.
_MESSAGE_BYTES = 256


class BrokerPlace:
    """The topics that a broker serves, each as its live log. Any thread may ask."""

    def __init__(self, server: str, key: str | None = None) -> None:
        self.server = server
        self.key = key
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        # Without the key: what is printed ends up in logs.
        return f"{type(self).__name__}({self.server!r})"

    def __str__(self) -> str:
        return self.server

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrokerPlace) and other.__reduce__() == self.__reduce__()

    def __hash__(self) -> int:
        return hash(self.server)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.server, self.key)

    @property
    def connection(self) -> Connection:
        """The connection of this process, opened when it is first needed."""
        if self._connection is None:
            self._connection = connect(self.server, key=self.key)
        return self._connection

    def topics(self) -> list[str]:
        return self.connection.topics()

    def origins(self) -> dict[str, str | None]:
        return dict(sorted(self.connection.shell.run(self.connection.calls.origins()).items()))

    def origin(self, topic: str) -> str | None:
        try:
            return self.connection.shell.run(self._calls.topic(topic)).dead_letters_of
        except TopicNotFound:
            return usual_origin(topic)

    def look(self, topic: str) -> TopicView:
        told = self.connection.shell.run(self._calls.topic(topic))
        lanes = {
            Lane(topic, each.partition, each.priority): LaneBounds(
                each.start, each.sealed, each.end, each.bytes
            )
            for each in told.lanes
        }
        return TopicView(told.created_us, told.settings, lanes)

    def created_us(self, topic: str) -> int:
        return self.look(topic).created_us

    def settings(self, topic: str) -> TopicSettings:
        return self.look(topic).settings

    def lanes(self, topic: str) -> dict[Lane, LaneBounds]:
        return self.look(topic).lanes

    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:  # noqa: ARG002
        told = self.connection.shell.run(self._calls.topic(topic))
        return {Lane(topic, each.partition, each.priority): each.synced for each in told.lanes}

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        return self.connection.shell.run(self._calls.find_time(*lane, timestamp_us))

    def frames(self, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        if start >= end:
            return
        # One page ahead: while this process looks at a page, the broker makes the next one.
        with ThreadPoolExecutor(1, thread_name_prefix="quiver-fetch") as ahead:
            following = ahead.submit(self._page, lane, start, end - start)
            while start < end:
                page = following.result()
                if page.next <= start:
                    # A log that ends early has lost something; fewer rows must never look like all.
                    raise OffsetOutOfRange(start, start=page.start, end=page.end)
                start = page.next
                if start < end:
                    following = ahead.submit(self._page, lane, start, end - start)
                for frame in page.frames:
                    if frame.header.base_offset >= end:
                        break
                    yield frame

    def removed(self, lane: Lane) -> OffsetSet:  # noqa: ARG002  (A broker shows nothing of any lane.)
        return OffsetSet()

    def commit(self, group: str, positions: Mapping[Lane, int]) -> None:
        """Let a group, which must have no members, stand there. Raises Conflict, OffsetOutOfRange."""
        offsets = [{**lane._asdict(), "offset": offset} for lane, offset in positions.items()]
        self.connection.shell.run(self._calls.commit(group, offsets))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _calls(self) -> LogCalls:
        return LogCalls(self.connection.calls)

    def _page(self, lane: Lane, offset: int, limit: int) -> FramePage:
        return self.connection.shell.run(self._calls.frames(*lane, offset, limit))


class WholeBrokerPlace(BrokerPlace):
    """The same with the broker's archive: lanes begin at the first offset that the broker can read."""

    def look(self, topic: str) -> TopicView:
        view = super().look(topic)
        return view._replace(lanes={lane: self._whole(lane, live) for lane, live in view.lanes.items()})

    def created_us(self, topic: str) -> int:
        return super().look(topic).created_us  # Nobody who asks only for this has to wait for the lanes.

    def settings(self, topic: str) -> TopicSettings:
        return super().look(topic).settings

    def _whole(self, lane: Lane, live: LaneBounds) -> LaneBounds:
        if live.start == 0:
            return live
        try:
            # At the end, where an answer has no messages to carry.
            start = self._page(lane, live.end, 1).start
        except OffsetOutOfRange as error:
            start = error.start  # The log lost its end or was made anew since it was looked at.
        if start >= live.start:
            return live
        held = live.end - live.start
        each_bytes = live.size_bytes / held if held else _MESSAGE_BYTES
        return live._replace(start=start, size_bytes=round(each_bytes * (live.end - start)))


_PAGE = 10_000
_DELIVERY = ("offset", "attempt", "state", "time", "owner", "first_delivered_at", "last_delivered_at")


class BrokerState:
    """Asks over HTTP, page by page."""

    def __init__(self, place: BrokerPlace) -> None:
        self._place = place

    def groups(self, topic: str) -> list[str]:
        return sorted(self._ask("topics", topic)["groups"])

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        try:
            told = self._ask("topics", topic, "groups", group)
            committed = self._ask("groups", group, "offsets", topic=topic)["offsets"]
            state = self._ask("groups", group)["state"]
        except GroupNotFound:
            return  # Somebody has just deleted it.
        cursors = {(each["partition"], each["priority"]): each["offset"] for each in committed}
        for lane in told["partitions"]:
            place = lane["partition"], lane["priority"]
            if not lane["end"]:
                continue
            yield GroupRow(
                topic,
                *place,
                group,
                cursor=cursors.get(place),
                position=lane["position"],
                start=lane["start"],
                end=lane["end"],
                lag=lane["lag"],
                in_flight=lane["in_flight"],
                retrying=lane["retrying"],
                waiting_for_key=lane["waiting_for_key"],
                state=state,
                members=len(told["members"]),
            )

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        for each in self._pages("deliveries", "offset", "topics", topic, "groups", group, "deliveries"):
            lane = topic, each["partition"], each["priority"]
            yield delivery_row(lane, group, *(each[name] for name in _DELIVERY))

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        for each in self._pages("segments", "base_offset", "topics", topic, "segments"):
            base, end = each["base_offset"], each["end_offset"]
            yield SegmentRow(
                topic,
                each["partition"],
                each["priority"],
                base,
                end,
                each["bytes"],
                None,
                end - base,
                each["first_timestamp"],
                each["last_timestamp"],
                each["sealed"],
                None,
            )

    def _pages(self, name: str, number: str, *parts: str) -> Iterator[Mapping[str, Any]]:
        """Everything of a list; nothing of what is not there any more."""
        query = {"limit": str(_PAGE)}
        while True:
            try:
                page = self._ask(*parts, **query)[name]
            except NotFound:
                return
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1]
            query["after"] = f"{last['partition']}-{LANE_NUMBERS[last['priority']]}-{last[number]}"

    def _ask(self, *parts: str, **query: str) -> Mapping[str, Any]:
        connection = self._place.connection
        answer = connection.shell.run(connection.calls.ask("GET", path_of(*parts), query=query))
        told: Mapping[str, Any] = decoded(answer.body)
        return told
