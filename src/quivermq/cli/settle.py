"""`quiver ack`, `nack`, `release`, `reject`, `extend`: settle messages by the receipts of `quiver get`."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from quivermq.cli.durations import parse_seconds
from quivermq.cli.get import GroupOption
from quivermq.cli.output import JsonOption, counted, print_json
from quivermq.cli.place import AnyEngine, AnyQueue, DataOption, ServerOption, TopicArgument, open_queue
from quivermq.errors import InvalidRequest, LeaseExpired

_FROM_STDIN = "-"
# As many as a broker takes in one call.
_BATCH = 10_000

ReceiptsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RECEIPT...",
        help="The receipts of `quiver get --no-ack --json`. `-` takes them from standard input:"
        " one a line, or the lines of `get` as they are.",
    ),
]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why, for whoever looks at it later.")]

Settle = Callable[[AnyQueue, list[str]], None]


def ack(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    group: GroupOption = "default",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that messages are done with. Exits with 4 when a lease has run out: such messages come again."""
    with open_queue(data, server) as mq:
        _run(_queue(mq, topic, group), receipts, lambda queue, held: queue.ack(held), "acked", as_json)


def nack(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    delay: Annotated[
        str | None, typer.Option(help="When they come again: 5s, 2m. By default after a growing wait.")
    ] = None,
    reason: ReasonOption = None,
    group: GroupOption = "default",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that messages failed: they come again, or become dead letters after their last attempt."""
    seconds = None if delay is None else parse_seconds(delay)
    with open_queue(data, server) as mq:
        _run(
            _queue(mq, topic, group),
            receipts,
            lambda queue, held: queue.nack(held, delay=seconds, reason=reason),
            "nacked",
            as_json,
        )


def release(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    group: GroupOption = "default",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give messages back as if they had not been taken: they come again at once, and no attempt counts."""
    with open_queue(data, server) as mq:
        _run(
            _queue(mq, topic, group), receipts, lambda queue, held: queue.release(held), "released", as_json
        )


def reject(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    reason: ReasonOption = None,
    group: GroupOption = "default",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that messages can never succeed: they become dead letters at once."""
    with open_queue(data, server) as mq:
        _run(
            _queue(mq, topic, group),
            receipts,
            lambda queue, held: queue.reject(held, reason),
            "rejected",
            as_json,
        )


def extend(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    lease: Annotated[str, typer.Option(help="How long from now: 60s, 5m.")] = "30s",
    group: GroupOption = "default",
    data: DataOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep messages for longer: their leases last for so long from now."""
    seconds = parse_seconds(lease)
    with open_queue(data, server) as mq:
        _run(
            _queue(mq, topic, group),
            receipts,
            lambda queue, held: queue.extend(held, seconds),
            "extended",
            as_json,
        )


def _queue(mq: AnyEngine, topic: str, group: str) -> AnyQueue:
    # One that is not there is told as such, not as a receipt that makes no sense.
    mq.topic(topic)
    return mq.queue(topic, group)


def _run(queue: AnyQueue, told: list[str], settle: Settle, done: str, as_json: bool) -> None:
    """Settle all of them, tell of each, and raise LeaseExpired when some came late."""
    receipts = list(dict.fromkeys(_receipts(told)))
    late: list[str] = []
    for start in range(0, len(receipts), _BATCH):
        try:
            settle(queue, receipts[start : start + _BATCH])
        except LeaseExpired as error:
            late += error.receipts
    if as_json:
        print_json({"results": [_result(receipt, late) for receipt in receipts]})
    else:
        print(f"{done} {counted(len(receipts) - len(late), 'message')}")
    if late:
        raise LeaseExpired(receipts=late)


def _result(receipt: str, late: list[str]) -> dict[str, Any]:
    """As a broker tells it."""
    if receipt not in late:
        return {"ok": True, "receipt": receipt}
    error = LeaseExpired(receipts=[receipt])
    told = {"code": error.code, "message": str(error), "retryable": error.retryable}
    return {"ok": False, "receipt": receipt, "error": told}


def _receipts(told: list[str]) -> Iterator[str]:
    for receipt in told:
        if receipt != _FROM_STDIN:
            yield receipt
            continue
        for number, line in enumerate(sys.stdin, 1):
            if text := line.strip():
                yield _receipt_of(text, number)


def _receipt_of(line: str, number: int) -> str:
    if not line.startswith("{"):
        return line
    try:
        receipt = json.loads(line).get("receipt")
    except ValueError:
        raise InvalidRequest(f"line {number} is neither a receipt nor JSON") from None
    if not isinstance(receipt, str):
        raise InvalidRequest(
            f"line {number} has no receipt: `quiver get --no-ack --json` writes such lines"
        )
    return receipt
