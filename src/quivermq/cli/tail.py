"""`quiver tail`: see messages as they come, without taking them."""

import time
from contextlib import closing
from typing import Annotated

from typer import Option

from quivermq.cli.connecting import find_location, naming_topics
from quivermq.cli.options import DataOption, NdjsonOption, ServerOption, TopicArgument
from quivermq.cli.outgoing import FormatOption, check_reader, writer
from quivermq.cli.patience import Patience
from quivermq.errors import OffsetOutOfRange, Unreachable
from quivermq.model.json import STORED
from quivermq.model.lanes import Lane
from quivermq.model.messages import StoredMessage
from quivermq.reading import QueueReader

_PAGE_MESSAGES = 1000
# Short enough for somebody who watches, long enough to cost a broker nothing.
_PAUSE_SECONDS = 0.2


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
    location = find_location(data, server)
    location.check()
    with closing(location.reader()) as reader, naming_topics(lambda: list(reader.origins())):
        patience = Patience()
        lanes = patience.ask(lambda: reader.lanes(topic))
        offsets = {lane: max(0, bounds.end - last) for lane, bounds in lanes.items()}
        left = count
        while left is None or left > 0:
            found = patience.ask(lambda: _advance_all(reader, topic, offsets))
            found = sorted(found, key=lambda message: message.timestamp)[:left]
            if found:
                write(found)
                left = None if left is None else left - len(found)
            else:
                check_reader()
                time.sleep(_PAUSE_SECONDS)


def _advance_all(reader: QueueReader, topic: str, offsets: dict[Lane, int]) -> list[StoredMessage]:
    """What came since in all lanes. One that is new is followed from its first message on."""
    before = dict(offsets)
    try:
        return [
            message
            for lane, bounds in reader.lanes(topic).items()
            if offsets.setdefault(lane, 0) != bounds.end
            for message in _advance(reader, lane, offsets)
        ]
    except Unreachable:
        # What was read of the first lanes was not written: it is read again.
        offsets.update(before)
        raise


def _advance(reader: QueueReader, lane: Lane, offsets: dict[Lane, int]) -> list[StoredMessage]:
    """What came since, and the offset behind it."""
    while True:
        try:
            found = reader.read(lane, offsets[lane], _PAGE_MESSAGES)
        except OffsetOutOfRange as error:
            # Retention was faster: go on with what is left.
            offsets[lane] = min(max(offsets[lane], error.start), error.end)
            continue
        if found:
            offsets[lane] = found[-1].offset + 1
        return found
