"""Settling: ack, nack, release, reject, extend. Each receipt, or each lease, has a result of its own."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.engine import Queue
from quivermq.errors import InvalidRequest, LeaseExpired
from quivermq.model.deliveries import Held, parse_receipt
from quivermq.model.lanes import LANE_NUMBERS
from quivermq.server.broker import Broker
from quivermq.server.delivering import Token, Withdrawn, may_wait, queue_of
from quivermq.server.http import Request, Response, json_response
from quivermq.server.messages_json import Priority
from quivermq.server.routing import Answer, Calls, Handler, Route
from quivermq.server.shapes import exactly_one
from quivermq.topic.offsets import runs

_MS_MAX = 365 * 24 * 3600 * 1000
_SETTLED_MAX = 100_000
_TOKENS_MAX = 100
# So many receipts, with names as long as they may be.
_BODY_BYTES_MAX = 32 * 1024 * 1024


class HeldIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages of one lease, as half-open ranges of offsets: start, end, start, end …"""

    topic: str
    partition: Annotated[int, Meta(ge=0)]
    token: Token
    runs: Annotated[list[Annotated[int, Meta(ge=0, le=2**62)]], Meta(min_length=2, max_length=200_000)]
    priority: Priority = "normal"


class SettleIn(msgspec.Struct, forbid_unknown_fields=True):
    """What is settled: `receipts`, or `leases` for libraries."""

    schema_extra: ClassVar[dict[str, Any]] = exactly_one("receipts", "leases")

    receipts: Annotated[list[str], Meta(min_length=1, max_length=_SETTLED_MAX)] | UnsetType = UNSET
    leases: Annotated[list[HeldIn], Meta(min_length=1, max_length=10_000)] | UnsetType = UNSET


class NackIn(SettleIn, forbid_unknown_fields=True):
    """What failed, when it may come again, and why."""

    delay_ms: Annotated[int, Meta(ge=0, le=_MS_MAX)] | None = None
    reason: str | None = None
    error: str | None = None


class ReleaseIn(SettleIn, forbid_unknown_fields=True):
    """What is given back. With `tokens`, whatever calls of `receive` that gave them took, or would take."""

    schema_extra: ClassVar[dict[str, Any]] = exactly_one("receipts", "leases", "tokens")

    tokens: Annotated[list[Token], Meta(min_length=1, max_length=_TOKENS_MAX)] | UnsetType = UNSET


class RejectIn(SettleIn, forbid_unknown_fields=True):
    """What can never succeed, and why."""

    reason: str | None = None
    error: str | None = None


class ExtendIn(SettleIn, forbid_unknown_fields=True):
    """What takes longer, and how long from now."""

    lease_ms: Annotated[int, Meta(ge=1, le=_MS_MAX)] = 30_000


class ResultOut(msgspec.Struct, omit_defaults=True):
    """What became of one receipt, or of one lease."""

    ok: bool
    receipt: str | UnsetType = UNSET
    refused: list[int] | UnsetType = UNSET
    """Of a lease, the ranges of offsets that came late."""
    error: dict[str, Any] | UnsetType = UNSET


class SettleOut(msgspec.Struct, omit_defaults=True):
    """What became of each, in the order they came."""

    results: list[ResultOut]
    error: dict[str, Any] | UnsetType = UNSET
    """When all of them came late."""


Settle = Callable[[list[str | Held]], None]

ROUTES: list[Route] = []
_group = Calls(ROUTES, "/v1/topics/{topic}/groups/{group}", "messages", (404, 507))


def _call(path: str, summary: str, body: type[SettleIn]) -> Callable[[Handler], Handler]:
    returns = {200: SettleOut, 409: SettleOut}
    return _group("POST", path, summary, returns, body=body, body_bytes_max=_BODY_BYTES_MAX)


@_call("/ack", "Acknowledge messages: they are done with", SettleIn)
def ack(broker: Broker, request: Request, body: SettleIn) -> Answer:
    """Messages are done with."""
    queue = queue_of(broker, request)
    return _settle(broker, queue, body, queue.ack)


@_call("/nack", "Messages failed: they are tried again, or become dead letters", NackIn)
def nack(broker: Broker, request: Request, body: NackIn) -> Answer:
    """Messages failed."""
    queue = queue_of(broker, request)
    delay = None if body.delay_ms is None else body.delay_ms / 1000
    return _settled_later(
        broker, body, _held(body), lambda held: queue.nack(held, delay, body.reason, error=body.error)
    )


@_call("/release", "Give messages back as if they had not been received: no attempt counts", ReleaseIn)
def release(broker: Broker, request: Request, body: ReleaseIn) -> Answer:
    """Messages are given back."""
    queue = queue_of(broker, request)
    if body.tokens is UNSET:
        return _settle(broker, queue, body, queue.release)
    if body.receipts is not UNSET or body.leases is not UNSET:
        raise InvalidRequest("the body has `receipts`, or `leases`, or `tokens`: one of them")
    return _taken_back(broker, queue, body.tokens)


async def _taken_back(broker: Broker, queue: Queue, tokens: list[str]) -> Response:
    """In a thread, because everything that is in flight is looked through."""
    withdrawn = broker.part(Withdrawn)
    for token in tokens:
        await broker.run(withdrawn.take_back, queue, int(token, 16))
    return json_response(SettleOut([ResultOut(ok=True)] * len(tokens)))


@_call("/reject", "Make messages dead letters: they can never succeed", RejectIn)
def reject(broker: Broker, request: Request, body: RejectIn) -> Answer:
    """Messages can never succeed."""
    queue = queue_of(broker, request)
    return _settled_later(
        broker, body, _held(body), lambda held: queue.reject(held, body.reason, error=body.error)
    )


@_call("/extend", "Keep messages for longer", ExtendIn)
def extend(broker: Broker, request: Request, body: ExtendIn) -> Answer:
    """Messages take longer."""
    queue = queue_of(broker, request)
    return _settle(broker, queue, body, lambda held: queue.extend(held, body.lease_ms / 1000))


def _settle(broker: Broker, queue: Queue, body: SettleIn, settle: Settle) -> Answer:
    held = _held(body)
    if may_wait(broker, queue):
        return _settled_later(broker, body, held, settle)
    return _settled(body, held, settle)


async def _settled_later(
    broker: Broker, body: SettleIn, held: list[str | Held], settle: Settle
) -> Response:
    """In a thread: what ends among the dead letters is synced, whatever the topic says."""
    return await broker.run(_settled, body, held, settle)


def _held(body: SettleIn) -> list[str | Held]:
    if (body.receipts is UNSET) == (body.leases is UNSET):
        raise InvalidRequest("the body has `receipts`, or `leases`: one of them")
    if body.receipts is not UNSET:
        return list(body.receipts)
    assert body.leases is not UNSET
    # A few bytes can name more messages than there is memory for.
    count = sum(max(0, end - start) for each in body.leases for start, end in _pairs(each.runs))
    if count > _SETTLED_MAX:
        raise InvalidRequest(f"{_SETTLED_MAX} messages at most are settled at once, not {count}")
    return [
        Held(each.topic, each.partition, LANE_NUMBERS[each.priority], int(each.token, 16), tuple(each.runs))
        for each in body.leases
    ]


def _pairs(flat: list[int]) -> Iterator[tuple[int, int]]:
    # One number too many is refused where the messages are looked up.
    return zip(flat[::2], flat[1::2], strict=False)


def _settled(body: SettleIn, held: list[str | Held], settle: Settle) -> Response:
    try:
        settle(held)
    except LeaseExpired as error:
        return _refused(body, error)
    if body.leases is not UNSET:
        return json_response(SettleOut([ResultOut(ok=True)] * len(held)))
    assert body.receipts is not UNSET
    return json_response(SettleOut([ResultOut(True, receipt) for receipt in body.receipts]))


def _refused(body: SettleIn, error: LeaseExpired) -> Response:
    """Say which of them came late. When all did, the whole call is a conflict."""
    told = {"code": error.code, "message": "the lease is over, or the message settled", "retryable": False}
    late = set(error.receipts)
    if body.receipts is not UNSET:
        results = [
            ResultOut(ok=False, receipt=receipt, error=told)
            if receipt in late
            else ResultOut(True, receipt)
            for receipt in body.receipts
        ]
        are_all_late = len(late) == len(set(body.receipts))
    else:
        assert body.leases is not UNSET
        offsets: dict[tuple[object, ...], list[int]] = {}
        for receipt in map(parse_receipt, late):
            place = receipt.topic, receipt.partition, receipt.priority, f"{receipt.token:x}"
            offsets.setdefault(place, []).append(receipt.offset)
        places = [(each.topic, each.partition, each.priority, each.token) for each in body.leases]
        results = [
            ResultOut(ok=False, refused=runs(offsets[place]), error=told)
            if place in offsets
            else ResultOut(ok=True)
            for place in places
        ]
        named = {
            (place, offset)
            for place, each in zip(places, body.leases, strict=True)
            for start, end in _pairs(each.runs)
            for offset in range(start, end)
        }
        are_all_late = len(late) == len(named)
    if not are_all_late:
        return json_response(SettleOut(results))
    whole = {"code": error.code, "message": str(error), "retryable": False, "receipts": sorted(late)[:100]}
    return json_response(SettleOut(results, whole), error.http_status)
