"""`quiver ack`, `nack`, `release`, `reject`, `extend`: settle messages by the receipts of `quiver get`."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from typer import Argument, Option

from quivermq.cli.command import on_queue
from quivermq.cli.connecting import open_queue
from quivermq.cli.durations import parse_seconds
from quivermq.cli.options import GroupOption, TopicArgument
from quivermq.cli.output import CommandResult, counted
from quivermq.errors import InvalidRequest, LeaseExpired, error_json
from quivermq.queue.connection import Connection
from quivermq.queue.queue import Queue

_FROM_STDIN = "-"
# As many as a broker takes in one call.
_BATCH = 10_000

ReceiptsArgument = Annotated[
    list[str],
    Argument(
        metavar="RECEIPT...",
        help="The receipts of `quiver get --no-ack --json`. `-` takes them from standard input:"
        " one a line, or the lines of `get` as they are.",
    ),
]
ReasonOption = Annotated[str | None, Option("--reason", help="Why, for whoever looks at it later.")]


@on_queue(open_queue)
def ack(
    topic: TopicArgument, receipts: ReceiptsArgument, group: GroupOption = "default", *, mq: Connection
) -> CommandResult:
    """Say that messages are done with. Exits with 4 when a lease has run out: such messages come again."""
    queue = _queue(mq, topic, group)
    return _settle(receipts, queue.ack, "acked")


@on_queue(open_queue)
def nack(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    delay: Annotated[
        str | None, Option(help="When they come again: 5s, 2m. By default after a growing wait.")
    ] = None,
    reason: ReasonOption = None,
    group: GroupOption = "default",
    *,
    mq: Connection,
) -> CommandResult:
    """Say that messages failed: they come again, or become dead letters after their last attempt."""
    seconds = None if delay is None else parse_seconds(delay)
    queue = _queue(mq, topic, group)
    return _settle(receipts, lambda held: queue.nack(held, delay=seconds, reason=reason), "nacked")


@on_queue(open_queue)
def release(
    topic: TopicArgument, receipts: ReceiptsArgument, group: GroupOption = "default", *, mq: Connection
) -> CommandResult:
    """Give messages back as if they had not been taken: they come again at once, and no attempt counts."""
    queue = _queue(mq, topic, group)
    return _settle(receipts, queue.release, "released")


@on_queue(open_queue)
def reject(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    reason: ReasonOption = None,
    group: GroupOption = "default",
    *,
    mq: Connection,
) -> CommandResult:
    """Say that messages can never succeed: they become dead letters at once."""
    queue = _queue(mq, topic, group)
    return _settle(receipts, lambda held: queue.reject(held, reason), "rejected")


@on_queue(open_queue)
def extend(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    lease: Annotated[str, Option(help="How long from now: 60s, 5m.")] = "30s",
    group: GroupOption = "default",
    *,
    mq: Connection,
) -> CommandResult:
    """Keep messages for longer: their leases last for so long from now."""
    seconds = parse_seconds(lease)
    queue = _queue(mq, topic, group)
    return _settle(receipts, lambda held: queue.extend(held, seconds), "extended")


def _queue(mq: Connection, topic: str, group: str) -> Queue:
    # One that is not there is told as such, not as a receipt that makes no sense.
    mq.topic(topic)
    return mq.queue(topic, group)


def _settle(given: list[str], settle: Callable[[list[str]], None], done: str) -> CommandResult:
    """Settle all of them and tell of each; fails with LeaseExpired when some came late."""
    receipts = list(dict.fromkeys(_receipts(given)))
    late: list[str] = []
    for start in range(0, len(receipts), _BATCH):
        try:
            settle(receipts[start : start + _BATCH])
        except LeaseExpired as error:
            late += error.receipts
    return CommandResult(
        {"results": [_result(receipt, late) for receipt in receipts]},
        f"{done} {counted(len(receipts) - len(late), 'message')}",
        failure=LeaseExpired(receipts=late) if late else None,
    )


def _result(receipt: str, late: list[str]) -> dict[str, Any]:
    """As a broker tells it."""
    if receipt not in late:
        return {"ok": True, "receipt": receipt}
    return {"ok": False, "receipt": receipt, "error": error_json(LeaseExpired(receipts=[receipt]))}


def _receipts(given: list[str]) -> Iterator[str]:
    for receipt in given:
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
