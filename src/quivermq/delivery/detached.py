"""Where a delivery stands that was pickled: it knows its message, and nobody who could settle it."""

from typing import NoReturn

from quivermq.delivery.lease import Lease
from quivermq.errors import InvalidRequest


class Detached:
    """In the place of a cursor. The receipt still holds, for any queue of the same topic and group."""

    __slots__ = ("group", "partition", "topic")

    def __init__(self, topic: str, partition: int, group: str) -> None:
        self.topic = topic
        self.partition = partition
        self.group = group

    def is_last_attempt(self, lease: Lease) -> bool:
        return bool(lease.is_last)

    def ack_one(self, *_: object) -> NoReturn:
        raise self._refusal("ack")

    def nack(self, *_: object) -> NoReturn:
        raise self._refusal("nack")

    def release(self, *_: object) -> NoReturn:
        raise self._refusal("release")

    def reject(self, *_: object) -> NoReturn:
        raise self._refusal("reject")

    def extend(self, *_: object) -> NoReturn:
        raise self._refusal("extend")

    def _refusal(self, act: str) -> InvalidRequest:
        return InvalidRequest(
            f"this delivery was pickled, and has no connection: use queue.{act}(delivery) of a queue of"
            f" {self.topic} with the group {self.group}"
        )
