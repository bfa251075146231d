"""`quiver put`: messages from an argument, a file or a pipe into a topic."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from typer import Argument, Option

from quivermq.cli.connecting import open_queue
from quivermq.cli.durations import parse_seconds
from quivermq.cli.incoming import batches, whole
from quivermq.cli.options import DataOption, JsonOption, ServerOption, TopicArgument, parse_pairs
from quivermq.cli.output import counted, print_line_of_json, say
from quivermq.cli.progress import progress_count
from quivermq.errors import InvalidRequest, QuiverError
from quivermq.log.entries import durability_of
from quivermq.model.json import message_of_line
from quivermq.model.lanes import priority_of
from quivermq.model.messages import Message, Put
from quivermq.queue.queue import Queue
from quivermq.settings import Durability

_STDIN = "-"
_DURATION = "500ms, 5s, 2m, 1h or 7d"

_DEFAULTS = Message._field_defaults


@dataclass(frozen=True, slots=True)
class _NumberedMessages:
    """Messages, and the number that each has in the stream: a line without a message counts, too."""

    messages: Sequence[bytes | Message]
    numbers: Sequence[int]


@dataclass(slots=True)
class _Total:
    """What has been put so far."""

    messages: int = 0
    duplicates: int = 0
    last: Put | None = None

    def add(self, puts: Sequence[Put], *, are_plain: bool) -> None:
        self.messages += len(puts)
        self.last = puts[-1]
        # Without an id nothing is a duplicate, and there are too many of such messages to look at each.
        if not are_plain:
            self.duplicates += sum(put.duplicate for put in puts)


def command(
    topic: TopicArgument,
    value: Annotated[
        str | None, Argument(help="The message. Without it, or with `-`, standard input is read.")
    ] = None,
    file: Annotated[
        Path | None, Option(help="One message with the bytes of this file; `-` is standard input.")
    ] = None,
    ndjson: Annotated[
        bool, Option("--ndjson", help="Each line of standard input is a message as JSON.")
    ] = False,
    null: Annotated[
        bool, Option("--null", help="Messages on standard input end with a zero byte.")
    ] = False,
    key: Annotated[str | None, Option(help="The key.")] = None,
    header: Annotated[list[str] | None, Option(help="A header, as NAME=VALUE. May be repeated.")] = None,
    priority: Annotated[str | None, Option(help="high, normal or low.")] = None,
    ttl: Annotated[str | None, Option(help=f"After how long it expires: {_DURATION}.")] = None,
    delay: Annotated[str | None, Option(help=f"After how long it is delivered: {_DURATION}.")] = None,
    dedup_id: Annotated[str | None, Option(help="An id by which a repetition is known.")] = None,
    dedup_window: Annotated[
        str | None,
        Option(help=f"How long that id is remembered: {_DURATION}. Else as the topic says."),
    ] = None,
    partition: Annotated[int | None, Option(help="The partition.")] = None,
    durability: Annotated[str | None, Option(help="fsync, os or buffered.")] = None,
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put messages into a topic, which is created when it is new.

    Standard input is one message a line unless an option says otherwise: `seq 1000 | quiver put numbers`.
    With `--ndjson` a line is an object with the fields of a message over HTTP, as `quiver get --json`
    writes it. Messages of a stream are put as they arrive, at most 1000 at once; after an error, some are
    in the topic already, and it says how many. With `--json`, each one's place is a line of JSON.
    """
    _check_sources(value, file, ndjson=ndjson, null=null)
    headers = parse_pairs(header, "a header is", "the header")
    extras = {
        "key": None if key is None else _bytes(key),
        "headers": {name: _bytes(text) for name, text in headers.items()} or None,
        "priority": None if priority is None else priority_of(priority),
        "ttl": None if ttl is None else parse_seconds(ttl),
        "delay": None if delay is None else parse_seconds(delay),
        "dedup_id": dedup_id,
        "dedup_window": None if dedup_window is None else parse_seconds(dedup_window),
        "partition": partition,
    }
    given = {name: extra for name, extra in extras.items() if extra is not None}
    chosen = None if durability is None else durability_of(durability)
    is_stream = file is None and value in (None, _STDIN)
    if is_stream and dedup_id is not None:
        raise InvalidRequest("--dedup-id is for one message: in a stream, give each its own with --ndjson")
    source = _stream(ndjson, null) if is_stream else iter([_NumberedMessages([_single(value, file)], [1])])
    each = "" if not is_stream else "message" if null else "line"
    total = _Total()
    with open_queue(data, server, create=True) as mq, progress_count("put") as advance:
        queue = mq.queue(topic)
        try:
            for batch in source:
                for puts in _put(queue, batch, given, chosen, each):
                    total.add(puts, are_plain=not given and not ndjson)
                    advance(len(puts))
                    if as_json:
                        for put in puts:
                            print_line_of_json(put._asdict())
        except (QuiverError, KeyboardInterrupt):
            if is_stream and not as_json:
                say(f"put {counted(total.messages, 'message')} into {topic} before it stopped")
            raise
    if not as_json:
        say(_summary(total, topic))


def _check_sources(value: str | None, file: Path | None, *, ndjson: bool, null: bool) -> None:
    is_given = value not in (None, _STDIN)
    if file is not None and value is not None:
        raise InvalidRequest("the message is VALUE or --file, not both")
    if ndjson and null:
        raise InvalidRequest(
            "messages are separated by lines, --ndjson, or by zeros, --null: give one of them"
        )
    if (ndjson or null) and (is_given or file is not None):
        raise InvalidRequest("--ndjson and --null are about standard input: leave VALUE and --file out")


def _single(value: str | None, file: Path | None) -> bytes:
    if file is None:
        assert value is not None
        return _bytes(value)
    if str(file) == _STDIN:
        return whole(_stdin())
    try:
        with file.open("rb") as stream:
            return whole(stream)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


def _bytes(text: str) -> bytes:
    # How the shell's bytes came to be text, and so how they become bytes again.
    return text.encode(errors="surrogateescape")


def _stdin() -> BinaryIO:
    if sys.stdin.isatty():
        say("reading from the terminal: end with Ctrl-D")
    return sys.stdin.buffer


def _stream(ndjson: bool, null: bool) -> Iterator[_NumberedMessages]:
    number = 1
    for pieces in batches(_stdin(), b"\0" if null else b"\n"):
        numbers = range(number, number + len(pieces))
        number += len(pieces)
        if ndjson:
            yield from _parsed(pieces, numbers)
        else:
            yield _NumberedMessages(pieces, numbers)


def _parsed(lines: Sequence[bytes], numbers: Sequence[int]) -> Iterator[_NumberedMessages]:
    messages: list[bytes | Message] = []
    kept: list[int] = []
    for line, number in zip(lines, numbers, strict=True):
        if not line.strip():
            continue
        try:
            messages.append(message_of_line(line))
        except InvalidRequest as error:
            # What comes before a mistake does not depend on how the lines came in.
            if messages:
                yield _NumberedMessages(messages, kept)
            raise InvalidRequest(f"line {number}: {error}") from None
        kept.append(number)
    if messages:
        yield _NumberedMessages(messages, kept)


def _put(
    queue: Queue, batch: _NumberedMessages, given: dict[str, Any], durability: Durability | None, each: str
) -> Iterator[Sequence[Put]]:
    messages = _with_extras(batch.messages, given)
    try:
        yield queue.put_many(messages, durability=durability)
        return
    except InvalidRequest:
        if not each:
            raise
    # Nothing of the batch was stored, and nothing tells which of its messages is wrong: one by one.
    for message, number in zip(messages, batch.numbers, strict=True):
        try:
            yield queue.put_many([message], durability=durability)
        except InvalidRequest as error:
            error.args = (f"{each} {number}: {error}",)
            raise


def _with_extras(batch: Sequence[bytes | Message], given: dict[str, Any]) -> list[bytes | Message]:
    """The messages with what the options say; what a message says itself counts more."""
    if not given:
        return list(batch)
    return [
        Message(item, **given)
        if isinstance(item, bytes)
        else item._replace(
            **{name: extra for name, extra in given.items() if getattr(item, name) == _DEFAULTS[name]}
        )
        for item in batch
    ]


def _summary(total: _Total, topic: str) -> str:
    put = total.last
    if total.messages == 1 and put is not None:
        where = f"{topic}, partition {put.partition}"
        if put.scheduled_id is not None:
            return f"scheduled in {where}, as {put.scheduled_id}"
        again = ", which was there already" if put.duplicate else ""
        priority = "" if put.priority == "normal" else f", priority {put.priority}"
        return f"put into {where}{priority}, offset {put.offset}{again}"
    again = f", {total.duplicates} of them there already" if total.duplicates else ""
    return f"put {counted(total.messages, 'message')} into {topic}{again}"
