"""What a log was asked to keep, and what of it it has promised to keep."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, NamedTuple, Self

from quivermq.log import ReadableLog
from quivermq.model.messages import Record
from quivermq.settings import Durability

Model = Literal["kill", "power", "store"]


class Message(NamedTuple):
    """A message as it was handed over; a timestamp of None is for the log to choose."""

    value: bytes
    key: bytes | None
    headers: dict[str, bytes] | None
    timestamp: int | None
    expires_at: int | None
    dedup_id: str | None

    def is_in(self, record: Record) -> bool:
        """Whether the record holds this message and nothing else."""
        return record == Record(
            offset=record.offset,
            timestamp=record.timestamp if self.timestamp is None else self.timestamp,
            key=self.key,
            value=self.value,
            headers=self.headers or {},
            expires_at=self.expires_at,
            dedup_id=self.dedup_id,
        )


def new_message(number: int, size: int) -> Message:
    """A message like no other: its number is in all of it, and decides which parts it has."""
    rng = Random(f"message {number}")
    return Message(
        value=b"<%d>" % number + rng.randbytes(size),
        key=b"key %d" % number if number % 3 else None,
        headers={"number": b"%d" % number, "empty": b""} if number % 4 == 1 else None,
        timestamp=1_600_000_000_000_000 + rng.randrange(10**9) if number % 5 == 2 else None,
        expires_at=2_000_000_000_000_000 + number if number % 6 == 3 else None,
        dedup_id=f"dedup {number}" if number % 7 == 4 else None,
    )


@dataclass(slots=True)
class Ledger:
    """Messages by offset, and the ends of what was promised. Ranges are half-open."""

    messages: dict[int, Message] = field(default_factory=dict)
    """Everything that was handed over and not refused, acknowledged or not."""
    batches: list[range] = field(default_factory=list)
    """Offsets that are in the log together or not at all."""
    made: int = 0
    start: int = 0
    end: int = 0
    start_max: int = 0
    """Where the log begins at most: behind `start` only while retention is at work."""
    end_max: int = 0
    """Where the log ends at most: behind `end` only while it is being truncated."""
    killed_end: int = 0
    """Everything before this offset survives kill -9."""
    power_end: int = 0
    """Everything before this offset survives power loss."""

    def copy(self) -> Self:
        return replace(self, messages=dict(self.messages), batches=list(self.batches))

    def expect(self, sizes: list[int], *, batch: bool = False) -> tuple[int, list[Message]]:
        """New messages, and the first offset that they must get."""
        offset = self.end
        messages = [new_message(self.made + place, size) for place, size in enumerate(sizes)]
        self.made += len(messages)
        for message in messages:
            self.messages[self.end] = message
            self.end += 1
        self.end_max = self.end
        if batch:
            self.batches.append(range(offset, self.end))
        return offset, messages

    def refuse(self, offset: int) -> None:
        """The log did not take the messages from `offset` on: nothing of them may ever show."""
        self._forget_from(offset)

    def promise(self, end: int, durability: Durability) -> None:
        """The log said that everything before `end` is as safe as that."""
        if durability != "buffered":
            self.killed_end = max(self.killed_end, end)
        if durability == "fsync":
            self.power_end = max(self.power_end, end)

    def expect_truncation(self, end: int) -> None:
        """From now on, what lies behind `end` may be gone, even a part of a batch."""
        self.batches = [batch for batch in self.batches if end not in batch[1:]]
        self.killed_end = min(self.killed_end, end)
        self.power_end = min(self.power_end, end)

    def truncated(self, end: int) -> None:
        """Everything behind `end` is gone for good, and everything before it is safe."""
        self._forget_from(end)
        self.killed_end = self.power_end = end

    def retained(self, start: int) -> None:
        """Everything before `start` is gone for good."""
        self.start = self.start_max = start

    def check(self, log: ReadableLog, model: Model) -> None:
        """Hold what is in a log, after a crash, against everything that was promised."""
        safe = self.killed_end if model == "kill" else self.power_end
        assert self.start <= log.start <= self.start_max, f"begins at {log.start}"
        assert safe <= log.end <= self.end_max, f"ends at {log.end}, {safe} was promised"
        records = list(log.records())
        assert [record.offset for record in records] == list(range(log.start, log.end))
        for record in records:
            expected = self.messages[record.offset]
            assert expected.is_in(record), f"{record} is not {expected}"
        divided = [batch for batch in self.batches if log.end in batch and log.end != batch.start]
        assert not divided, f"ends at {log.end}, in the middle of {divided}"

    def adopt(self, log: ReadableLog) -> None:
        """Recovery has decided what is in the log: that is what it has to keep from now on."""
        self._forget_from(log.end)
        self.retained(log.start)
        self.killed_end = self.power_end = log.end

    def _forget_from(self, end: int) -> None:
        self.messages = {offset: kept for offset, kept in self.messages.items() if offset < end}
        self.batches = [batch for batch in self.batches if batch.stop <= end]
        self.end = self.end_max = end
