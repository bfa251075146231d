"""`quiver put`: messages from an argument, a file or a pipe into a topic."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from quivermq.cli.durations import parse_seconds
from quivermq.cli.incoming import batches, whole
from quivermq.cli.messages import message_line
from quivermq.cli.output import JsonOption, counted, print_line_of_json, progress_count, say
from quivermq.cli.place import AnyQueue, DataOption, ServerOption, TopicArgument, open_queue
from quivermq.errors import InvalidRequest, QuiverError
from quivermq.model.messages import Message, Put

_STDIN = "-"
_DURATION = "500ms, 5s, 2m, 1h or 7d"

_DEFAULTS = {field.name: field.default for field in fields(Message)}


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages, and the number that each has in the stream: a line without a message counts, too."""

    messages: Sequence[bytes | Message]
    numbers: Sequence[int]


@dataclass(slots=True)
class _Told:
    """What has been put so far."""

    messages: int = 0
    duplicates: int = 0
    last: Put | None = None


def command(
    topic: TopicArgument,
    value: Annotated[
        str | None, typer.Argument(help="The message. Without it, or with `-`, standard input is read.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="One message with the bytes of this file; `-` is standard input.")
    ] = None,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="Each line of standard input is a message as JSON.")
    ] = False,
    null: Annotated[
        bool, typer.Option("--null", help="Messages on standard input end with a zero byte.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="The key.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="A header, as NAME=VALUE. May be repeated.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="high, normal or low.")] = None,
    ttl: Annotated[str | None, typer.Option(help=f"After how long it expires: {_DURATION}.")] = None,
    delay: Annotated[str | None, typer.Option(help=f"After how long it is delivered: {_DURATION}.")] = None,
    dedup_id: Annotated[str | None, typer.Option(help="An id by which a repetition is known.")] = None,
    dedup_window: Annotated[
        str | None,
        typer.Option(help=f"How long that id is remembered: {_DURATION}. Else as the topic says."),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="The partition.")] = None,
    durability: Annotated[str | None, typer.Option(help="fsync, os or buffered.")] = None,
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
    extras = {
        "key": None if key is None else key.encode(errors="surrogateescape"),
        "headers": _headers(header),
        "priority": priority,
        "ttl": None if ttl is None else parse_seconds(ttl),
        "delay": None if delay is None else parse_seconds(delay),
        "dedup_id": dedup_id,
        "dedup_window": None if dedup_window is None else parse_seconds(dedup_window),
        "partition": partition,
    }
    given = {name: extra for name, extra in extras.items() if extra is not None}
    is_stream = file is None and value in (None, _STDIN)
    if is_stream and dedup_id is not None:
        raise InvalidRequest("--dedup-id is for one message: in a stream, give each its own with --ndjson")
    source = _stream(ndjson, null) if is_stream else iter([_Batch([_single(value, file)], [1])])
    each = "" if not is_stream else "message" if null else "line"
    told = _Told()
    with open_queue(data, server, create=True) as mq, progress_count("put") as advance:
        queue = mq.queue(topic)
        try:
            for batch in source:
                for puts in _put(queue, batch, given, durability, each):
                    _account(told, puts, all_plain=not given and not ndjson, as_json=as_json)
                    advance(len(puts))
        except (QuiverError, KeyboardInterrupt):
            if is_stream and not as_json:
                say(f"put {counted(told.messages, 'message')} into {topic} before it stopped")
            raise
    if not as_json:
        say(_summary(told, topic))


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


def _headers(given: list[str] | None) -> dict[str, bytes] | None:
    headers: dict[str, bytes] = {}
    for text in given or ():
        name, equals, content = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"a header is NAME=VALUE, not {text!r:.80}")
        if name in headers:
            raise InvalidRequest(f"the header {name} is there twice")
        headers[name] = content.encode(errors="surrogateescape")
    return headers or None


def _single(value: str | None, file: Path | None) -> bytes:
    if file is None:
        assert value is not None
        # How the shell's bytes came to be text, and so how they become bytes again.
        return value.encode(errors="surrogateescape")
    if str(file) == _STDIN:
        return whole(_stdin())
    try:
        with file.open("rb") as stream:
            return whole(stream)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


def _stdin() -> BinaryIO:
    if sys.stdin.isatty():
        say("reading from the terminal: end with Ctrl-D")
    return sys.stdin.buffer


def _stream(ndjson: bool, null: bool) -> Iterator[_Batch]:
    number = 1
    for pieces in batches(_stdin(), b"\0" if null else b"\n"):
        numbers = range(number, number + len(pieces))
        number += len(pieces)
        if ndjson:
            yield from _parsed(pieces, numbers)
        else:
            yield _Batch(pieces, numbers)


def _parsed(lines: Sequence[bytes], numbers: Sequence[int]) -> Iterator[_Batch]:
    messages: list[bytes | Message] = []
    kept: list[int] = []
    for line, number in zip(lines, numbers, strict=True):
        if not line.strip():
            continue
        try:
            messages.append(message_line(line))
        except InvalidRequest as error:
            # What comes before a mistake does not depend on how the lines came in.
            if messages:
                yield _Batch(messages, kept)
            raise InvalidRequest(f"line {number}: {error}") from None
        kept.append(number)
    if messages:
        yield _Batch(messages, kept)


def _put(
    queue: AnyQueue, batch: _Batch, given: dict[str, Any], durability: str | None, each: str
) -> Iterator[Sequence[Put]]:
    messages = _with_extras(batch.messages, given)
    try:
        yield queue.put_many(messages, durability=durability)  # type: ignore[arg-type]
        return
    except InvalidRequest:
        if not each:
            raise
    # Nothing of the batch was stored, and nothing tells which of its messages is wrong: one by one.
    for message, number in zip(messages, batch.numbers, strict=True):
        try:
            yield queue.put_many([message], durability=durability)  # type: ignore[arg-type]
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
        else replace(item, **{name: extra for name, extra in given.items() if _is_open(item, name)})
        for item in batch
    ]


def _is_open(message: Message, name: str) -> bool:
    return bool(getattr(message, name) == _DEFAULTS[name])


def _account(told: _Told, puts: Sequence[Put], *, all_plain: bool, as_json: bool) -> None:
    told.messages += len(puts)
    told.last = puts[-1]
    if as_json:
        for put in puts:
            print_line_of_json(put._asdict())
    elif not all_plain:
        told.duplicates += sum(put.duplicate for put in puts)


def _summary(told: _Told, topic: str) -> str:
    put = told.last
    if told.messages == 1 and put is not None:
        where = f"{topic}, partition {put.partition}"
        if put.scheduled_id is not None:
            return f"scheduled in {where}, as {put.scheduled_id}"
        again = ", which was there already" if put.duplicate else ""
        priority = "" if put.priority == "normal" else f", priority {put.priority}"
        return f"put into {where}{priority}, offset {put.offset}{again}"
    again = f", {told.duplicates} of them there already" if told.duplicates else ""
    return f"put {counted(told.messages, 'message')} into {topic}{again}"
