"""A broker, asked over HTTP: for frames as its logs and its archive store them, and for its groups."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from quivermq.client.blocking.backend import HttpBackend, connect_http
from quivermq.client.core.logs import FramePage
from quivermq.client.core.patience import PATIENT
from quivermq.client.core.wire import decoded, path_of, place_of
from quivermq.disk import SystemDisk
from quivermq.errors import GroupNotFound, InvalidRequest, NotFound, OffsetOutOfRange, TopicNotFound
from quivermq.frame import Frame, Wanted
from quivermq.log import Report
from quivermq.model.lanes import Lane
from quivermq.model.messages import StoredMessage
from quivermq.model.names import check_topic_name, usual_origin
from quivermq.model.operations import GetExtent, LaneBounds, TopicExtent, UseArchive
from quivermq.model.topic_settings import TopicSettings
from quivermq.opening import connect
from quivermq.queue.connection import Connection
from quivermq.reading.reader import (
    BytesCallback,
    DeliveryRow,
    GroupRow,
    MessageReader,
    QueueReader,
    SegmentPart,
    SegmentRow,
    fingerprint,
)
from quivermq.settings import ClientSettings
from quivermq.topic.offsets import OffsetSet

# What a message takes where nothing is live by which to tell; only the number of tasks depends on it.
_MESSAGE_BYTES = 256
_PAGE = 10_000
_VERIFY_SECONDS = 24 * 3600
_LANE_FIGURES = ("position", "start", "end", "lag", "in_flight", "retrying", "waiting_for_key")
_DELIVERY = ("offset", "attempt", "state", "time", "owner", "first_delivered_at", "last_delivered_at")


class BrokerReader(QueueReader):
    """The topics that a broker serves, each as its live log.

    `with_archive` shows the broker's archive, too: lanes begin at the first offset that it can read.
    """

    def __init__(
        self,
        server: str,
        key: str | None = None,
        settings: ClientSettings | None = None,
        with_archive: bool = False,
    ) -> None:
        self.server = server
        self.key = key
        self.disk = SystemDisk()
        self._settings = settings
        self._with_archive = with_archive
        self._opened: HttpBackend | None = None

    def _arguments(self) -> tuple[Any, ...]:
        return self.server, self.key, self._settings, self._with_archive

    def __str__(self) -> str:
        return self.server

    def options(self) -> dict[str, str]:
        return {"server": self.server} | ({} if self.key is None else {"key": self.key})

    def open_queue(
        self,
        *,
        if_locked: str = "",  # noqa: ARG002  (Nobody locks a broker.)
        is_patient: bool = False,
    ) -> Connection:
        if not is_patient:
            return connect(self.server, key=self.key, settings=self._settings)
        backend = connect_http(self.server, self.key, settings=self._settings)
        # Not by its `patient`, which asks at once: a task may begin while the broker is away.
        return Connection(HttpBackend(backend.name, backend.shell, PATIENT))

    def state_root(self) -> Path:
        given = os.environ.get("XDG_STATE_HOME")
        home = Path(given) if given else Path.home() / ".local" / "state"
        return home / "quiver" / "pipelines" / fingerprint(self.server)

    def staging_root(self) -> Path | None:
        return None

    def files_root(self) -> Path | None:
        return None

    @property
    def _backend(self) -> HttpBackend:
        """The connection of this process, opened when it is first needed."""
        if self._opened is None:
            self._opened = connect_http(self.server, self.key, settings=self._settings)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def origins(self) -> dict[str, str | None]:
        return dict(sorted(self._backend.shell.run(self._backend.calls.origins()).items()))

    def origin(self, topic: str) -> str | None:
        try:
            return self._look(topic).dead_letters_of
        except TopicNotFound:
            return usual_origin(topic)

    def look(self, topic: str) -> TopicExtent:
        extent = self._look(topic)
        if not self._with_archive:
            return extent
        return extent._replace(lanes={lane: self._whole(lane, live) for lane, live in extent.lanes.items()})

    def _look(self, topic: str) -> TopicExtent:
        # Here, because without a name the address is that of all topics.
        check_topic_name(topic)
        return self._backend.perform(GetExtent(topic))

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
        each_bytes = live.bytes / held if held else _MESSAGE_BYTES
        return live._replace(start=start, bytes=round(each_bytes * (live.end - start)))

    def created_us(self, topic: str) -> int:
        # Not by `look`: nobody who asks only for this has to wait for the lanes.
        return self._look(topic).created_us

    def settings(self, topic: str) -> TopicSettings:
        return self._look(topic).settings

    def synced_ends(self, topic: str, starts: Mapping[Lane, int]) -> dict[Lane, int]:  # noqa: ARG002
        return {lane: bounds.synced for lane, bounds in self._look(topic).lanes.items()}

    def find_time(self, lane: Lane, timestamp_us: int) -> int:
        return self._backend.shell.run(self._backend.logs.find_time(*lane, timestamp_us))

    def first_since(self, lane: Lane, append_us: int) -> int:  # noqa: ARG002  (A broker does not tell.)
        return 0

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

    def read(self, lane: Lane, start: int, limit: int) -> list[StoredMessage]:
        queue = self._backend.queue(lane.topic, "default")
        return queue.read(lane.partition, start, limit, lane.priority, Wanted())

    def removed(self, lane: Lane) -> OffsetSet:  # noqa: ARG002  (A broker shows nothing of any lane.)
        return OffsetSet()

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> bool:
        given = [{**lane._asdict(), "offset": offset} for lane, offset in offsets.items()]
        self._backend.shell.run(self._backend.logs.commit(group, given))
        return True

    def _with_own_archive(self) -> MessageReader:
        return BrokerReader(self.server, self.key, self._settings, with_archive=True)

    def archive_directory(self) -> Path | None:
        directory = self._ask("archive")["directory"]
        return None if directory is None else Path(directory)

    def new_archive_directory(self) -> Path:
        raise InvalidRequest("the broker has no archive yet: say where to put it, with to= (--to)")

    def use_archive(self, directory: Path) -> None:
        self._backend.perform(UseArchive(str(directory)))

    def segments(self, topic: str) -> list[SegmentPart]:
        return [
            SegmentPart(
                Lane(topic, each["partition"], each["priority"]),
                each["base_offset"],
                each["end_offset"],
                each["bytes"],
                each["sealed"],
            )
            for each in self._pages("segments", "base_offset", "topics", topic, "segments")
            if each["end_offset"] > each["base_offset"]
        ]

    def verify(self, progress: BytesCallback | None = None) -> Report:  # noqa: ARG002  (It does not tell.)
        # Nothing comes back before the last byte is checked, and there may be many.
        with connect(self.server, key=self.key, timeout=_VERIFY_SECONDS, settings=self._settings) as queue:
            return queue.verify()

    def groups(self, topic: str) -> list[str]:
        return sorted(self._ask("topics", topic)["groups"])

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        try:
            described = self._ask("topics", topic, "groups", group)
            committed = self._ask("groups", group, "offsets", topic=topic)["offsets"]
            state = self._ask("groups", group)["state"]
        except GroupNotFound:
            return  # Somebody has just deleted it.
        cursors = {(each["partition"], each["priority"]): each["offset"] for each in committed}
        for each in described["partitions"]:
            if each["end"]:
                lane = Lane(topic, each["partition"], each["priority"])
                figures = [each[name] for name in _LANE_FIGURES]
                members = len(described["members"])
                yield GroupRow(*lane, group, cursors.get(lane[1:]), *figures)._replace(
                    state=state, members=members
                )

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        try:
            for each in self._pages("deliveries", "offset", "topics", topic, "groups", group, "deliveries"):
                lane = Lane(topic, each["partition"], each["priority"])
                yield DeliveryRow.of(lane, group, *(each[name] for name in _DELIVERY))
        except NotFound:
            return  # Somebody has just deleted it.

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        try:
            for each in self._pages("segments", "base_offset", "topics", topic, "segments"):
                base, end = each["base_offset"], each["end_offset"]
                place = topic, each["partition"], each["priority"], base, end, each["bytes"], None
                times = each["first_timestamp"], each["last_timestamp"]
                yield SegmentRow(*place, end - base, *times, each["sealed"], None)
        except NotFound:
            return  # Somebody has just deleted it.

    def journal_changes(self, *_: object) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def _page(self, lane: Lane, offset: int, limit: int) -> FramePage:
        return self._backend.shell.run(self._backend.logs.frames(*lane, offset, limit))

    def _pages(self, name: str, offset: str, *parts: str) -> Iterator[Mapping[str, Any]]:
        """Everything of a list, page by page. Raises NotFound."""
        query = {"limit": str(_PAGE)}
        while True:
            page = self._ask(*parts, **query)[name]
            yield from page
            if len(page) < _PAGE:
                return
            query["after"] = place_of(page[-1], offset)

    def _ask(self, *parts: str, **query: str) -> Mapping[str, Any]:
        flow = self._backend.calls.ask("GET", path_of(*parts), query=query)
        response: Mapping[str, Any] = decoded(self._backend.shell.run(flow).body)
        return response
