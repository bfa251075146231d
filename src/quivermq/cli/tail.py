"""`quiver tail`: see messages as they come, without taking them."""

import time
from typing import Annotated

import typer

from quivermq.cli.looking import Lane, Sight, open_sight
from quivermq.cli.messages import STORED
from quivermq.cli.outgoing import FormatOption, NdjsonOption, OutputFormat, check_reader, writer
from quivermq.cli.patience import Patience
from quivermq.cli.place import DataOption, ServerOption, TopicArgument
from quivermq.errors import OffsetOutOfRange, Unreachable
from quivermq.model.messages import StoredMessage

_PAGE_MESSAGES = 1000
# Short enough for somebody who watches, long enough to cost a broker nothing.
_PAUSE_SECONDS = 0.2


def command(
    topic: TopicArgument,
    last: Annotated[
        int, typer.Option("--last", "-n", help="Begin with so many earlier ones of each log.", min=0)
    ] = 0,
    count: Annotated[int | None, typer.Option(help="End after so many messages.", min=1)] = None,
    shape: FormatOption = OutputFormat.value,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: NdjsonOption = False,
) -> None:
    """Write the messages of a topic as they come, until it is interrupted. Nothing is consumed.

    All partitions and priorities are followed, also those that are added. Of a directory the files are
    watched, beside the process that writes to them. A broker that is started again is waited for.
    """
    write = writer(OutputFormat.ndjson if as_json else shape, STORED)
    with open_sight(data, server, topic, beside=True) as sight:
        patience = Patience()
        positions = patience.ask(lambda: {lane: _begin(sight, lane, last) for lane in sight.lanes()})
        left = count
        while left is None or left > 0:
            found = patience.ask(lambda: _advance_all(sight, positions))
            found = sorted(found, key=lambda message: message.timestamp)[:left]
            if found:
                write(found)
                left = None if left is None else left - len(found)
            else:
                check_reader()
                time.sleep(_PAUSE_SECONDS)


def _begin(sight: Sight, lane: Lane, last: int) -> int:
    bounds = sight.bounds(lane)
    if bounds is None:
        return 0
    start, end = bounds
    return max(start, end - last)


def _advance_all(sight: Sight, positions: dict[Lane, int]) -> list[StoredMessage]:
    """What came since in all lanes. One that is new is followed from its first message on."""
    before = dict(positions)
    try:
        for lane in sight.lanes():
            positions.setdefault(lane, 0)
        return [each for lane in positions for each in _advance(sight, lane, positions)]
    except Unreachable:
        # What was read of the first lanes was not written: it is read again.
        positions.update(before)
        raise


def _advance(sight: Sight, lane: Lane, positions: dict[Lane, int]) -> list[StoredMessage]:
    """What came since, and the position behind it."""
    partition, priority = lane
    while True:
        try:
            found = sight.read(partition, positions[lane], _PAGE_MESSAGES, priority)
        except OffsetOutOfRange as error:
            # Retention was faster: go on with what is left.
            positions[lane] = min(max(positions[lane], error.start), error.end)
            continue
        if found:
            positions[lane] = found[-1].offset + 1
        return found
