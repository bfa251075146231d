"""What a receive answers: leases in JSON, and behind them frames of the log as they are."""

from collections.abc import Callable, Iterator
from itertools import repeat
from struct import Struct
from typing import Any

from quivermq.client.core.wire import decoded
from quivermq.errors import InvalidFrame, QuiverError
from quivermq.frame import Frame
from quivermq.frame.header import padded
from quivermq.model.deliveries import Delivery, Lease, Settler
from quivermq.model.lanes import lane_number
from quivermq.model.messages import Record

_LENGTH = Struct("<I")
# Settings of a broker may let larger frames in than a reader expects by default.
FRAME_BYTES_MAX = 1024 * 1024 * 1024

SettlerOf = Callable[[str, int], Settler]


class Received:
    """An answer whose leases are known, and whose frames are not opened before somebody wants them."""

    __slots__ = ("_body", "_frames_at", "_leases")

    def __init__(self, body: bytes) -> None:
        """Raises QuiverError when the answer makes no sense."""
        if len(body) < _LENGTH.size:
            raise QuiverError(f"a delivery begins with the length of its leases, not {body!r}")
        end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        self._body = body
        self._frames_at = padded(end)
        self._leases: list[dict[str, Any]] = decoded(body[_LENGTH.size : end])["leases"]

    def __len__(self) -> int:
        return sum(sum(lease["runs"][1::2]) - sum(lease["runs"][::2]) for lease in self._leases)

    def deliveries(self, settler_of: SettlerOf) -> list[Delivery]:
        """The messages in order. Raises InvalidFrame."""
        frames = frames_of(self._body, self._frames_at)
        deliveries: list[Delivery] = []
        for lease in self._leases:
            records = _records(lease, frames)
            settler = settler_of(lease["topic"], lease["partition"])
            held = Lease(lease["attempt"], lease["deadline"], int(lease["token"], 16))
            held.is_last = lease["is_last_attempt"]
            lane = lane_number(lease["priority"])
            deliveries += map(Delivery, records, repeat(held), repeat(settler), repeat(lane))
        return deliveries


def frames_of(body: bytes, position: int = 0) -> Iterator[Frame]:
    """Frame after frame of a body. Raises InvalidFrame."""
    view = memoryview(body)
    while position < len(body):
        frame = Frame.parse(view, position, frame_bytes_max=FRAME_BYTES_MAX, raw_bytes_max=FRAME_BYTES_MAX)
        position += frame.header.frame_bytes
        yield frame


def _records(lease: dict[str, Any], frames: Iterator[Frame]) -> list[Record]:
    """The messages of one lease, out of as many frames as it says it has."""
    runs = lease["runs"]
    found: list[Record] = []
    for _ in range(lease["frames"]):
        frame = next(frames, None)
        if frame is None:
            raise InvalidFrame("a frame of a delivery is missing", position=0)
        if not frame.is_control:
            found += frame.records()
    if len(runs) == 2 and found and found[0].offset == runs[0] and found[-1].offset == runs[1] - 1:
        return found
    wanted = set().union(*map(range, runs[::2], runs[1::2]))
    return [record for record in found if record.offset in wanted]
