"""Reading a topic without taking anything: through the queue, or beside a process that has it open."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from quivermq.cli.place import (
    AnyEngine,
    check_directory,
    close_names,
    find_place,
    only_to_look_at,
    open_queue,
    settings_here,
)
from quivermq.disk import SystemDisk
from quivermq.errors import InvalidRequest, OffsetOutOfRange, QuiverError, TopicNotFound
from quivermq.frame import OFFSET_MAX
from quivermq.log import LogFollower, follow
from quivermq.model.lanes import LANES, lane_number
from quivermq.model.messages import StoredMessage
from quivermq.model.names import check_topic_name
from quivermq.topic.stored import FILE_NAME as TOPIC_FILE
from quivermq.topic.stored import load_topic

Lane = tuple[int, str]
# By partition, start, limit and priority, as `Queue.read` has them.
Read = Callable[[int, int | None, int, str], list[StoredMessage]]

_PAGE_MESSAGES = 1000


class Sight:
    """A topic to look at."""

    def __init__(self, partitions: Callable[[], int], read: Read) -> None:
        self._partitions = partitions
        self._read = read

    def lanes(self) -> list[Lane]:
        """Those there are now: a topic can get more partitions. Raises TopicNotFound."""
        return [(number, lane) for number in range(self._partitions()) for lane in LANES]

    def read(self, partition: int, start: int | None, limit: int, priority: str) -> list[StoredMessage]:
        """Messages of one lane. Raises OffsetOutOfRange, InvalidRequest."""
        return self._read(partition, start, limit, priority)

    def pages(
        self, partition: int, start: int | None, limit: int, priority: str
    ) -> Iterator[list[StoredMessage]]:
        """Up to `limit` messages of one lane, page by page."""
        while limit > 0:
            page = self.read(partition, start, min(limit, _PAGE_MESSAGES), priority)
            if not page:
                return
            yield page
            start = page[-1].offset + 1
            limit -= len(page)

    def bounds(self, lane: Lane) -> tuple[int, int] | None:
        """The first offset of a lane and the one behind its last; None while nothing was put there."""
        partition, priority = lane
        try:
            self.read(partition, OFFSET_MAX, 1, priority)
        except OffsetOutOfRange as error:
            # Nobody has that many messages, and the refusal tells how many there are.
            return (error.start, error.end) if error.end else None
        return None


def sight_of(mq: AnyEngine, topic: str) -> Sight:
    """A topic of a queue that is open."""
    queue = mq.queue(topic)

    def read(partition: int, start: int | None, limit: int, priority: str) -> list[StoredMessage]:
        return queue.read(partition, start, limit, priority=priority)

    mq.topic(topic)  # One that is not there is told now, not when something is read.
    return Sight(lambda: mq.topic(topic).partitions, read)


@contextmanager
def open_sight(data: Path | None, server: str | None, topic: str, *, beside: bool) -> Iterator[Sight]:
    """The topic where the options say. A directory that somebody has open is looked at from beside.

    With `beside` it always is, so that others can go on to open it.
    """
    place = find_place(data, server)
    with ExitStack() as opened:
        if place.data is not None and beside:
            sight = _sight_beside(place.data, topic)
        else:
            try:
                sight = sight_of(opened.enter_context(open_queue(data, server)), topic)
            except QuiverError as error:
                if place.data is None or only_to_look_at(error) is None:
                    raise
                sight = _sight_beside(place.data, topic)
        yield sight


def _sight_beside(data: Path, topic: str) -> Sight:
    """A topic as its files show it. Takes no lock and changes nothing."""
    check_directory(data)
    check_topic_name(topic)
    storage = settings_here().storage
    path = data / "topics" / topic
    _partitions(path)
    followers: dict[Lane, LogFollower] = {}

    def read(partition: int, start: int | None, limit: int, priority: str) -> list[StoredMessage]:
        lane_number(priority)
        follower = followers.get((partition, priority))
        if follower is None:
            partitions = _partitions(path)
            if not 0 <= partition < partitions:
                raise InvalidRequest(f"there is no partition {partition}: the topic has {partitions}")
            name = f"topics/{topic}/p{partition}/{priority}"
            if not (data / name).is_dir():
                return []
            follower = followers[partition, priority] = follow(data, name, storage)
        records = islice(follower.records(start), limit)
        return [StoredMessage(topic, partition, priority, *record) for record in records]

    return Sight(lambda: _partitions(path), read)


def _partitions(path: Path) -> int:
    stored = load_topic(SystemDisk(), path)
    if stored is None or stored.deleted:
        names = (each.parent.name for each in path.parent.glob(f"*/{TOPIC_FILE}"))
        advice = close_names(path.name, names) or "`quiver topic list` shows those there are"
        raise TopicNotFound(f"there is no topic {path.name}: {advice}")
    return stored.settings.partitions
