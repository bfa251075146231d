"""Putting other frames in the place of those of a segment: how compaction reaches a broker."""

import re

import msgspec

from quivermq.errors import InvalidRequest
from quivermq.frame import OFFSET_MAX
from quivermq.server.broker import Broker
from quivermq.server.http import FRAME, Request, Response, json_response
from quivermq.server.query import PRIORITY, choice_of, partition_of
from quivermq.server.routing import Parameter, Route
from quivermq.server.shapes import Count

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_STAMP = re.compile(r"[0-9]{1,19}-[0-9a-f]{8}", re.ASCII)
_EXPECTED = Parameter(
    "expected",
    {"type": "string", "pattern": "^[0-9]{1,19}-[0-9a-f]{8}$"},
    "The stamp of the frames that are to go: their bytes in all, and the CRC-32C of their headers.",
    required=True,
)


class ReplacedOut(msgspec.Struct):
    """How large the segment was, and is."""

    bytes_before: Count
    bytes_after: Count


async def replace_segment(broker: Broker, request: Request) -> Response:
    """Replace frames of a sealed segment by others that take the same offsets.

    The topic has `cleanup` set to `compact`. Frames that were changed since they were read are a 409.
    """
    hosted = broker.engine.hosted(request.params["topic"])
    partition = partition_of(request, hosted.settings.partitions)
    text, expected = request.params["base_offset"], request.query.get("expected", "")
    if not _DIGITS.fullmatch(text) or int(text) > OFFSET_MAX:
        raise InvalidRequest(f"a segment is named by its first offset, not {text[:80]!r}")
    if not _STAMP.fullmatch(expected):
        raise InvalidRequest(
            f"expected is the stamp of the old frames, like 4711-0a1b2c3d, not {expected[:80]!r}"
        )
    if request.content_type != FRAME:
        raise InvalidRequest(f"the body is frames, so its Content-Type is {FRAME}")
    done = await broker.run(
        broker.engine.replace_segment,
        hosted.name,
        partition,
        int(text),
        request.body,
        expected=expected,
        priority=choice_of(request, PRIORITY),
    )
    return json_response(ReplacedOut(*done))


ROUTES: list[Route] = [
    Route(
        "PUT",
        "/v1/topics/{topic}/partitions/{partition}/segments/{base_offset}",
        replace_segment,
        summary="Replace frames of a sealed segment, to compact it",
        tag="topics",
        query=(_EXPECTED, PRIORITY),
        consumes=(FRAME,),
        returns={200: ReplacedOut},
        errors=(404, 409, 507),
    ),
]
