"""What has been imported, kept in a topic of the target itself, so that nothing is ever added twice.

Messages of the topic `quiver.imports` are records in JSON, by the name of the topic that they are about. A
stream is what one partition of a source topic, or its dead letters, becomes here. Of a stream it is written

    that a run begins       durably before its first message
    which items are in      after each chunk, once it is on stable storage, with where the lanes ended then
    that a run has ended    so that nobody has to look behind these ends the next time

and of a topic that an import made, how large its messages may be.

So whatever dies, only messages behind the last known ends may be in the topic without being in here, and
these are found there: a run that was not ended is looked after by the next one.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from quivermq.clock import Clock
from quivermq.delivery.adoption import Progress, Tried
from quivermq.errors import Conflict, TopicExists
from quivermq.frame import Producer, encode
from quivermq.importers.identities import Identities
from quivermq.importers.ledger_book import LEDGER_LANE, LedgerBook
from quivermq.importers.marks import number_of
from quivermq.importers.target import ImportTarget, LaneId
from quivermq.topic.names import IMPORTS_TOPIC

_VERSION = 1
# What has been imported is never forgotten, whatever the defaults are.
_LIMITS = ("retention_ms", "retention_bytes", "retention_messages", "segments_max")


@dataclass(slots=True)
class StreamState:
    """What is known of a stream in the topic that has it now."""

    created_us: int
    done: Identities = field(default_factory=Identities)
    ends: dict[LaneId, int] = field(default_factory=dict)
    is_open: bool = False
    """Whether a run has begun and not ended."""
    is_delaying: bool = False
    """Whether delayed messages were about to be put, and nobody knows whether they were."""
    adopted: dict[tuple[str, LaneId], Progress] = field(default_factory=dict)
    """Where groups were put, by group and lane."""


class Ledger:
    """The records about one topic."""

    def __init__(self, target: ImportTarget, book: LedgerBook, topic: str, clock: Clock) -> None:
        self._target = target
        self._book = book
        self._topic = topic
        self._clock = clock
        self._producer_id = number_of("ledger", topic)
        self._epoch = 0
        self._sequence = 0
        self._has_begun = False
        # By import, what its source is known by.
        self.witnesses: dict[str, set[str]] = {}
        self._streams: dict[str, StreamState] = {}
        # By when a topic was made, the limits that imports gave it.
        self._limits: dict[int, set[int]] = {}
        self._read_on()

    def begin(self) -> None:
        """Be the only one who notes something about the topic, and know all that others have noted."""
        if self._has_begun:
            return
        if self._target.look(IMPORTS_TOPIC) is None:
            # Somebody else may import for the first time, into another topic.
            with suppress(TopicExists):
                self._target.create(IMPORTS_TOPIC, durability="fsync", **dict.fromkeys(_LIMITS))
        self._epoch = self._target.begin(IMPORTS_TOPIC, self._producer_id).epoch
        self._has_begun = True
        self._read_on()

    def state(self, stream: str, created_us: int) -> StreamState:
        """What is known of a stream in the topic that was made then."""
        found = self._streams.get(stream)
        if found is None or found.created_us != created_us:
            # A topic of that name was deleted since: what was in it is not in this one.
            found = self._streams[stream] = StreamState(created_us)
        return found

    def note_source(
        self, import_id: str, kind: str, path: str, name: str, witnesses: Iterable[str]
    ) -> None:
        """Remember by what a source is known again."""
        new = set(witnesses) - self.witnesses.get(import_id, set())
        if import_id in self.witnesses and not new:
            return
        self._write(
            {
                "type": "source",
                "import": import_id,
                "kind": kind,
                "path": path,
                "source_topic": name,
                "witnesses": sorted(new),
            }
        )

    def limits(self, created_us: int) -> set[int]:
        """The limits in bytes that imports gave a topic; none where it was made by somebody else."""
        return self._limits.get(created_us, set())

    def note_limit(self, created_us: int, limit_bytes: int) -> None:
        """An import made the topic, or alters it, so that messages may have so many bytes."""
        self._write({"type": "limit", "created": created_us, "bytes": limit_bytes})

    def note_begun(self, stream: str, created_us: int) -> None:
        """A run is about to write the first message of a stream."""
        self._write({"type": "begun", "stream": stream, "created": created_us})

    def note_delaying(self, stream: str, created_us: int) -> None:
        """Delayed messages are about to be put."""
        self._write({"type": "delaying", "stream": stream, "created": created_us})

    def note_done(self, stream: str, created_us: int, done: Identities, ends: Mapping[LaneId, int]) -> None:
        """These items are in the topic, on stable storage."""
        record = {"type": "done", "stream": stream, "created": created_us, **done.as_json()}
        self._write({**record, "ends": [[*lane, end] for lane, end in ends.items()]})

    def note_adopted(
        self, stream: str, created_us: int, group: str, lane: LaneId, progress: Progress
    ) -> None:
        """A group was put there."""
        told = [progress.position, [[run.start, run.end, run.attempts] for run in progress.tried]]
        record = {"type": "adopted", "stream": stream, "created": created_us, "group": group}
        self._write({**record, "lane": [*lane], "progress": told})

    def note_ended(self, stream: str, created_us: int) -> None:
        """Everything that a run wrote is noted."""
        self._write({"type": "ended", "stream": stream, "created": created_us})

    def _read_on(self) -> None:
        for value in self._book.read_on(self._topic):
            self._apply_stored(value)

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self._has_begun, "whoever writes has begun"
        value = json.dumps({"version": _VERSION, **record}, separators=(",", ":")).encode()
        frame = encode(
            [value],
            timestamp=self._clock.now_us(),
            keys=[self._topic.encode()],
            producer=Producer(self._producer_id, self._epoch, self._sequence),
        )
        self._target.put_frame(IMPORTS_TOPIC, bytes(frame), LEDGER_LANE)
        self._sequence += 1
        # Nobody asks again for what this run has done, and it may be a lot.
        self._apply({**record, "ranges": (), "ids": ""})

    def _apply_stored(self, value: bytes) -> None:
        try:
            record = json.loads(value)
            if record["version"] != _VERSION:
                raise ValueError(f"its version {record['version']} is not known")
            self._apply(record)
        except (ValueError, KeyError, TypeError) as error:
            raise Conflict(
                f"the topic {IMPORTS_TOPIC} has a record about {self._topic} that cannot be understood:"
                f" {error!r}. Import into another topic"
            ) from None

    def _apply(self, record: Mapping[str, Any]) -> None:
        kind = record["type"]
        if kind == "source":
            self.witnesses.setdefault(record["import"], set()).update(record["witnesses"])
            return
        if kind == "limit":
            self._limits.setdefault(record["created"], set()).add(record["bytes"])
            return
        state = self.state(record["stream"], record["created"])
        if kind == "begun":
            state.is_open = True
        elif kind == "delaying":
            state.is_delaying = True
        elif kind == "done":
            state.done.add_json(record)
            state.is_delaying = False
            state.ends.update((LaneId(number, priority), end) for number, priority, end in record["ends"])
        elif kind == "adopted":
            position, tried = record["progress"]
            progress = Progress(position, tuple(Tried(*run) for run in tried))
            state.adopted[record["group"], LaneId(*record["lane"])] = progress
        elif kind == "ended":
            state.is_open = state.is_delaying = False
