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
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from quivermq.clock import Clock
from quivermq.errors import Conflict, TopicExists
from quivermq.frame import Producer, encode
from quivermq.importers.encoding import number_of
from quivermq.importers.target import ImportTarget
from quivermq.model.adoption import Progress, Tried
from quivermq.model.lanes import Lane, Priority
from quivermq.model.names import IMPORTS_TOPIC

LEDGER_LANE = Lane(IMPORTS_TOPIC, 0, "normal")

# A lane in a record: which topic it is of, the stream says.
StreamLane = tuple[int, Priority]


class LedgerBook:
    """Reads on from where it was. It keeps what is about the topics that a run imports into."""

    def __init__(self, target: ImportTarget, topics: Iterable[str]) -> None:
        self._target = target
        self._unread: dict[bytes, list[bytes]] = {topic.encode(): [] for topic in topics}
        self._created_us: int | None = None
        self._next = 0

    def read_on(self, topic: str) -> list[bytes]:
        """The records about a topic that it was not given yet, in order."""
        self._catch_up()
        records, self._unread[topic.encode()] = self._unread[topic.encode()], []
        return records

    def _catch_up(self) -> None:
        view = self._target.look(IMPORTS_TOPIC)
        bounds = None if view is None else view.lanes.get(LEDGER_LANE)
        if view is None or bounds is None:
            return
        if view.created_us != self._created_us:
            # The first look, or somebody has deleted it meanwhile.
            self._created_us, self._next = view.created_us, 0
        start = max(self._next, bounds.start)
        for frame in self._target.frames(LEDGER_LANE, start, bounds.end):
            for key, value in zip(frame.keys(), frame.values(), strict=True):
                if key in self._unread:
                    self._unread[key].append(value)
        self._next = max(start, bounds.end)


class RangeSet:
    """A set of whole numbers that mostly follow each other. What is added in order costs nearly nothing."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        # Sorted, half-open, and never touching each other.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number < self._ends[place]

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The runs, half-open, in order."""
        return zip(self._starts, self._ends, strict=True)

    def add(self, number: int) -> None:
        if self._ends and self._ends[-1] == number:
            self._ends[-1] = number + 1
        else:
            self.add_range(number, number + 1)

    def add_range(self, start: int, end: int) -> None:
        """Take in every number from `start` up to but not including `end`."""
        if start >= end:
            return
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]


# Smaller ones are offsets or counted ids, and follow each other.
_COUNTED_END = 2**64
_ID_BYTES = 16


class Identities:
    """A set of the identities of items."""

    __slots__ = ("_counted", "_others")

    def __init__(self) -> None:
        self._counted = RangeSet()
        self._others: set[int] = set()

    def __contains__(self, identity: int) -> bool:
        return identity in self._counted if identity < _COUNTED_END else identity in self._others

    def add(self, identity: int) -> None:
        if identity < _COUNTED_END:
            self._counted.add(identity)
        else:
            self._others.add(identity)

    def as_json(self) -> dict[str, Any]:
        """The set as the ledger keeps it."""
        packed = b"".join(identity.to_bytes(_ID_BYTES, "little") for identity in sorted(self._others))
        return {
            "ranges": [list(each) for each in self._counted.ranges()],
            "ids": b64encode(packed).decode(),
        }

    def add_json(self, record: Mapping[str, Any]) -> None:
        """Take in what `as_json` gave."""
        for start, end in record["ranges"]:
            self._counted.add_range(start, end)
        packed = b64decode(record["ids"])
        for place in range(0, len(packed), _ID_BYTES):
            self._others.add(int.from_bytes(packed[place : place + _ID_BYTES], "little"))


RecordKind = Literal["begun", "delaying", "done", "adopted", "ended"]
_VERSION = 1
# What has been imported is never forgotten, whatever the defaults are.
_LIMITS = ("retention_ms", "retention_bytes", "retention_messages", "segments_max")


@dataclass(slots=True)
class StreamState:
    """What is known of a stream in the topic that has it now."""

    created_us: int
    done: Identities = field(default_factory=Identities)
    ends: dict[StreamLane, int] = field(default_factory=dict)
    is_open: bool = False
    """Whether a run has begun and not ended."""
    is_delaying: bool = False
    """Whether delayed messages were about to be put, and nobody knows whether they were."""
    adopted: dict[tuple[str, StreamLane], Progress] = field(default_factory=dict)
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
                self._target.create_topic(IMPORTS_TOPIC, durability="fsync", **dict.fromkeys(_LIMITS))
        self._epoch = self._target.begin_producer(IMPORTS_TOPIC, self._producer_id).epoch
        self._has_begun = True
        self._read_on()

    def state(self, stream: str, created_us: int) -> StreamState:
        """What is known of a stream in the topic that was made then."""
        found = self._streams.get(stream)
        if found is None or found.created_us != created_us:
            # A topic of that name was deleted since: what was in it is not in this one.
            found = self._streams[stream] = StreamState(created_us)
        return found

    def limits(self, created_us: int) -> set[int]:
        """The limits in bytes that imports gave a topic; none where it was made by somebody else."""
        return self._limits.get(created_us, set())

    def note_source(self, import_id: str, witnesses: Iterable[str], **origin: str) -> None:
        """Remember by what a source is known again."""
        new = set(witnesses) - self.witnesses.get(import_id, set())
        if new or import_id not in self.witnesses:
            self._write({"type": "source", "import": import_id, **origin, "witnesses": sorted(new)})

    def note_limit(self, created_us: int, limit_bytes: int) -> None:
        """An import made the topic, or alters it, so that messages may have so many bytes."""
        self._write({"type": "limit", "created": created_us, "bytes": limit_bytes})

    def note(self, kind: RecordKind, stream: str, created_us: int, **more: Any) -> None:
        """What becomes of a stream: a run is about to write its first message, or to put delayed ones;
        items are in the topic, on stable storage; a group was put somewhere; the run has ended."""
        self._write({"type": kind, "stream": stream, "created": created_us, **more})

    def note_done(self, stream: str, created_us: int, done: Identities, ends: Mapping[Lane, int]) -> None:
        lanes = [[*lane[1:], end] for lane, end in ends.items()]
        self.note("done", stream, created_us, **done.as_json(), ends=lanes)

    def note_adopted(
        self, stream: str, created_us: int, group: str, lane: Lane, progress: Progress
    ) -> None:
        tried = [[run.start, run.end, run.attempts] for run in progress.tried]
        position = [progress.position, tried]
        self.note("adopted", stream, created_us, group=group, lane=[*lane[1:]], progress=position)

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
        self._target.put_frame(LEDGER_LANE, bytes(frame), "fsync")
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
            state.ends.update(((number, priority), end) for number, priority, end in record["ends"])
        elif kind == "adopted":
            position, tried = record["progress"]
            progress = Progress(position, tuple(Tried(*run) for run in tried))
            number, priority = record["lane"]
            state.adopted[record["group"], (number, priority)] = progress
        elif kind == "ended":
            state.is_open = state.is_delaying = False
