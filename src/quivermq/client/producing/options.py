"""How a producer gathers and sends."""

from dataclasses import dataclass
from typing import Literal, get_args

from quivermq.client.core.retry import Retry
from quivermq.client.producing.gathering import BatchLimits
from quivermq.log.entries import check_durability
from quivermq.model.checks import check_choice, check_number
from quivermq.settings import CodecName, Durability

WhenFull = Literal["block", "raise"]
Acks = Literal["leader", "none"]

MIB = 1024 * 1024
# About two minutes with the waits of `Retry`.
RETRIES = 30


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """As `Connection.producer` takes them. Raises InvalidRequest."""

    linger_ms: int = 5
    batch_messages: int = 1000
    batch_bytes: int = MIB
    buffer_bytes: int = 64 * MIB
    when_full: WhenFull = "block"
    acks: Acks = "leader"
    retries: int = RETRIES
    durability: Durability | None = None
    compression: CodecName | None = None

    def __post_init__(self) -> None:
        check_number("linger_ms", self.linger_ms, 0, 3_600_000)
        check_number("batch_messages", self.batch_messages, 1, 100_000)
        check_number("batch_bytes", self.batch_bytes, 1, 8 * MIB)
        check_number("buffer_bytes", self.buffer_bytes, 1, 2**40)
        check_number("retries", self.retries, 0, 2**31)
        check_choice("when_full", self.when_full, get_args(WhenFull))
        check_choice("acks", self.acks, get_args(Acks))
        if self.durability is not None:
            check_durability(self.durability)
        if self.compression is not None:
            check_choice("compression", self.compression, get_args(CodecName))

    @property
    def batch_limits(self) -> BatchLimits:
        """When a batch is sent."""
        return BatchLimits(self.linger_ms / 1000, self.batch_messages, self.batch_bytes)

    @property
    def retry(self) -> Retry:
        """What cannot be stored now is waited for, where somebody cares."""
        is_safe = self.acks == "leader"
        return Retry(self.retries if is_safe else 0, is_patient=is_safe)
