"""`quiver tail`: see messages as they come, without taking them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from quivermq.cli.connecting import check_directory, find_location, naming_topics, open_queue
from quivermq.cli.options import DataOption, NdjsonOption, ServerOption, TopicArgument
from quivermq.cli.outgoing import FormatOption, check_reader, writer
from quivermq.cli.patience import Patience
from quivermq.errors import OffsetOutOfRange, Unreachable
from quivermq.model.json import STORED
from quivermq.model.lanes import Lane, priority_of
from quivermq.model.messages import StoredMessage
from quivermq.reading.directory import DirectoryReader

_PAGE_MESSAGES = 1000
# Short enough for somebody who watches, long enough to cost a broker nothing.
_PAUSE_SECONDS = 0.2


class _Topic(NamedTuple):
    """A topic to watch: the end of each of its lanes, and some messages of one from an offset on."""

    ends: Callable[[], dict[Lane, int]]
    read: Callable[[Lane, int], list[StoredMessage]]


def command(
    topic: TopicArgument,
    last: Annotated[
        int, Option("--last", "-n", help="Begin with so many earlier ones of each log.", min=0)
    ] = 0,
    count: Annotated[int | None, Option(help="End after so many messages.", min=1)] = None,
    shape: FormatOption = "value",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: NdjsonOption = False,
) -> None:
    """Write the messages of a topic as they come, until it is interrupted. Nothing is consumed.

    All partitions and priorities are followed, also those that are added. Of a directory the files are
    watched, beside the process that writes to them. A broker that is started again is waited for.
    """
    write = writer("ndjson" if as_json else shape, STORED)
    with _watched(data, server, topic) as watched:
        patience = Patience()
        offsets = {lane: max(0, end - last) for lane, end in patience.ask(watched.ends).items()}
        left = count
        while left is None or left > 0:
            found = patience.ask(lambda: _advance_all(watched, offsets))
            found = sorted(found, key=lambda message: message.timestamp)[:left]
            if found:
                write(found)
                left = None if left is None else left - len(found)
            else:
                check_reader()
                time.sleep(_PAUSE_SECONDS)


@contextmanager
def _watched(data: Path | None, server: str | None, topic: str) -> Iterator[_Topic]:
    """The topic where the options say. The files of a directory are read, so that others can open it."""
    location = find_location(data, server)
    if location.data is None:
        with open_queue(data, server) as mq:
            queue = mq.queue(topic)
            yield _Topic(
                lambda: {lane: bounds.end for lane, bounds in mq.backend.look(topic).lanes.items()},
                lambda lane, start: queue.read(
                    lane.partition, start, _PAGE_MESSAGES, priority=priority_of(lane.priority)
                ),
            )
        return
    check_directory(location.data)
    reader = DirectoryReader(str(location.data))
    with naming_topics(lambda: list(reader.origins())):
        yield _Topic(
            lambda: {lane: extent.end for lane, extent in reader.lanes(topic).items()},
            lambda lane, start: [
                StoredMessage(topic, lane.partition, priority_of(lane.priority), *record)
                for record in reader.follower(lane).records(start, limit=_PAGE_MESSAGES)
            ],
        )


def _advance_all(watched: _Topic, offsets: dict[Lane, int]) -> list[StoredMessage]:
    """What came since in all lanes. One that is new is followed from its first message on."""
    before = dict(offsets)
    try:
        return [
            message
            for lane, end in watched.ends().items()
            if offsets.setdefault(lane, 0) != end
            for message in _advance(watched, lane, offsets)
        ]
    except Unreachable:
        # What was read of the first lanes was not written: it is read again.
        offsets.update(before)
        raise


def _advance(watched: _Topic, lane: Lane, offsets: dict[Lane, int]) -> list[StoredMessage]:
    """What came since, and the offset behind it."""
    while True:
        try:
            found = watched.read(lane, offsets[lane])
        except OffsetOutOfRange as error:
            # Retention was faster: go on with what is left.
            offsets[lane] = min(max(offsets[lane], error.start), error.end)
            continue
        if found:
            offsets[lane] = found[-1].offset + 1
        return found
