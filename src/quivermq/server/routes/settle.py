"""Settling: ack, nack, release, reject, extend. Each receipt, or each lease, has a result of its own."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quivermq.engine import EngineQueue
from quivermq.errors import InvalidRequest, LeaseExpired, error_json
from quivermq.model.claims import Claims
from quivermq.model.deliveries import Held, parse_receipt
from quivermq.model.lanes import Priority, lane_number
from quivermq.model.names import Scope
from quivermq.model.operations import Settle
from quivermq.server.broker import Broker
from quivermq.server.delivering import Token, Withdrawn, may_wait, queue_of
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routing import Answer, Calls, Handler, Route
from quivermq.server.shapes import WAIT_MS_MAX, exactly_one
from quivermq.topic.offsets import runs

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

    delay_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] | None = None
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

    lease_ms: Annotated[int, Meta(ge=1, le=WAIT_MS_MAX)] = 30_000


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


ROUTES: list[Route] = []
_group = Calls(ROUTES, "/v1/topics/{topic}/groups/{group}", "messages", (404, 507))


def _call(path: str, summary: str) -> Callable[[Handler], Handler]:
    returns = {200: SettleOut, 409: SettleOut}
    return _group("POST", path, summary, returns, body_bytes_max=_BODY_BYTES_MAX)


@_call("/ack", "Acknowledge messages: they are done with")
def ack(broker: Broker, request: Request, body: SettleIn) -> Answer:
    """Messages are done with."""
    return _settle(broker, request, body, Settle("ack"))


@_call("/nack", "Messages failed: they are tried again, or become dead letters")
def nack(broker: Broker, request: Request, body: NackIn) -> Answer:
    """Messages failed."""
    delay = None if body.delay_ms is None else body.delay_ms / 1000
    return _settle(broker, request, body, Settle("nack", delay, body.reason, body.error))


@_call("/release", "Give messages back as if they had not been received: no attempt counts")
def release(broker: Broker, request: Request, body: ReleaseIn) -> Answer:
    """Messages are given back."""
    if body.tokens is UNSET:
        return _settle(broker, request, body, Settle("release"))
    if body.receipts is not UNSET or body.leases is not UNSET:
        raise InvalidRequest("the body has `receipts`, or `leases`, or `tokens`: one of them")
    return _taken_back(broker, queue_of(broker, request), body.tokens)


async def _taken_back(broker: Broker, queue: EngineQueue, tokens: list[str]) -> Response:
    """In a thread, because everything that is in flight is looked through."""
    withdrawn = broker.part(Withdrawn)
    for token in tokens:
        await broker.run(withdrawn.take_back, queue, int(token, 16))
    return json_response(SettleOut([ResultOut(ok=True)] * len(tokens)))


@_call("/reject", "Make messages dead letters: they can never succeed")
def reject(broker: Broker, request: Request, body: RejectIn) -> Answer:
    """Messages can never succeed."""
    return _settle(broker, request, body, Settle("reject", None, body.reason, body.error))


@_call("/extend", "Keep messages for longer")
def extend(broker: Broker, request: Request, body: ExtendIn) -> Answer:
    """Messages take longer."""
    return _settle(broker, request, body, Settle("extend", seconds=body.lease_ms / 1000))


def _settle(broker: Broker, request: Request, body: SettleIn, settle: Settle) -> Answer:
    queue = queue_of(broker, request)
    leases = _leases(body, queue)
    # What ends among the dead letters is synced, whatever the topic says.
    if settle.act in ("nack", "reject") or may_wait(broker, queue):
        return broker.run(_settled, queue, body, settle, leases)
    return _settled(queue, body, settle, leases)


def _leases(body: SettleIn, queue: EngineQueue) -> list[Held]:
    if (body.receipts is UNSET) == (body.leases is UNSET):
        raise InvalidRequest("the body has `receipts`, or `leases`: one of them")
    if body.receipts is not UNSET:
        return Claims(body.receipts, Scope(queue.topic), queue.group).leases()
    assert body.leases is not UNSET
    # A few bytes can name more messages than there is memory for.
    count = sum(max(0, end - start) for each in body.leases for start, end in _pairs(each.runs))
    if count > _SETTLED_MAX:
        raise InvalidRequest(f"{_SETTLED_MAX} messages at most are settled at once, not {count}")
    return [
        Held(each.topic, each.partition, lane_number(each.priority), int(each.token, 16), _offsets(each))
        for each in body.leases
    ]


def _offsets(held: HeldIn) -> list[int]:
    """The offsets of ranges. Raises InvalidRequest for what are none."""
    pairs = list(_pairs(held.runs))
    if len(held.runs) % 2 or not all(start < end for start, end in pairs):
        raise InvalidRequest(f"{held.runs!r:.80} are no ranges: pairs of start and end")
    return [offset for start, end in pairs for offset in range(start, end)]


def _pairs(flat: list[int]) -> Iterator[tuple[int, int]]:
    return zip(flat[::2], flat[1::2], strict=False)


def _settled(queue: EngineQueue, body: SettleIn, settle: Settle, leases: list[Held]) -> Response:
    settled = queue.settle(settle, leases)
    if settled.failure is not None:
        raise settled.failure
    if settled.late:
        return _refused(body, LeaseExpired(receipts=settled.late))
    if body.leases is not UNSET:
        return json_response(SettleOut([ResultOut(ok=True)] * len(body.leases)))
    assert body.receipts is not UNSET
    return json_response(SettleOut([ResultOut(True, receipt) for receipt in body.receipts]))


def _refused(body: SettleIn, error: LeaseExpired) -> Response:
    """Say which of them came late. When all did, the whole call is a conflict."""
    reason = error_json(error, "the lease is over, or the message settled")
    late = set(error.receipts)
    if body.receipts is not UNSET:
        results = [
            ResultOut(ok=False, receipt=receipt, error=reason)
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
            ResultOut(ok=False, refused=runs(offsets[place]), error=reason)
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
    whole = {**error_json(error), "receipts": sorted(late)[:100]}
    return json_response(SettleOut(results, whole), error.http_status)
