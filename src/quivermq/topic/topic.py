"""A topic: its partitions and lanes, and the way of a message into one of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from quivermq.clock import SteadyClock
from quivermq.disk import Buffer
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame
from quivermq.log import DataDirectory, Log
from quivermq.log.limits import check_durability, check_foreign_frame, parse_only
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.delay import Delayed, DelayStore
from quivermq.topic.incoming import Incoming, Message, check_message, check_partition
from quivermq.topic.names import is_dead_letter_topic
from quivermq.topic.partition import LANES, Partition, lane_number
from quivermq.topic.put import Put, Puts
from quivermq.topic.routing import Router
from quivermq.topic.seen import Lanes, Seen, Sighting
from quivermq.topic.settings import TopicSettings

NORMAL = LANES.index("normal")

# A batch becomes frames of at most this many messages and bytes.
_FRAME_MESSAGES = 10_000
_FRAME_BYTES = 4 * 1024 * 1024
# What a dead letter may be larger than the message it was: the story of its end.
_FRAME_OVERHEAD_BYTES = 4 * 1024


class Topic:
    """Opens what there is of a topic, and appends to it. Thread-safe."""

    def __init__(
        self, directory: DataDirectory, name: str, settings: TopicSettings, clock: SteadyClock
    ) -> None:
        self.name = name
        self._directory = directory
        self._clock = clock
        self.settings = settings
        self._limits = settings.storage(directory.settings)
        self._storage = self._storage_of(self._limits)
        self.partitions = self._opened(0, settings.partitions)
        self._router = Router(settings.partitions)
        self.delays = DelayStore(directory, f"topics/{name}/delayed", self._storage, self._lane_log)
        self.seen = Seen(directory, f"topics/{name}/seen", self.lanes)
        self.seen.restore_scheduled(self.delays.dedup_ids())

    def lanes(self) -> Lanes:
        """Every lane that is in use, by partition and number."""
        return {
            (partition.number, lane): log
            for partition in self.partitions
            for lane, log in enumerate(partition.logs)
            if log is not None
        }

    def configure(self, settings: TopicSettings) -> None:
        """Go on with other settings; new partitions are opened at once."""
        limits = settings.storage(self._directory.settings)
        storage = self._storage_of(limits)
        more = self._opened(len(self.partitions), settings.partitions)
        for partition in self.partitions:
            partition.configure(storage)
        self.delays.configure(storage)
        self._limits, self._storage = limits, storage
        self.partitions = [*self.partitions, *more]
        if more:
            self._router = Router(settings.partitions)
        self.settings = settings

    # The way in.

    def put(self, message: Message, durability: Durability | None = None) -> Put:
        """Store one message. Raises InvalidRequest, DiskFull, StorageFailed."""
        return self.put_many([message], durability)[0]

    def append_plain(self, value: bytes, durability: Durability | None) -> tuple[int, int]:
        """Store a message that is just a value: the partition and the offset it got."""
        partitions = self.partitions
        number = self._router.partition_of(None) if len(partitions) > 1 else 0
        partition = partitions[number]
        log = partition.logs[NORMAL] or partition.log(NORMAL)
        if self.settings.ttl_ms is not None:
            expires_at = self._clock.now_us() + self.settings.ttl_ms * 1000
            return number, log.append(value, expires_at=expires_at, durability=durability)
        return number, log.append(value, durability=durability)

    def put_many(
        self, messages: Sequence[bytes | Message], durability: Durability | None = None
    ) -> Sequence[Put]:
        """Store messages, those of one lane in one frame. All are checked before the first is stored."""
        word = durability or self.settings.durability
        check_durability(word)
        if not messages:
            return []
        if set(map(type, messages)) == {bytes} and self.settings.ttl_ms is None:
            return self._put_values(messages, word)  # type: ignore[arg-type]  # All are bytes.
        checked = [self._checked(message) for message in messages]
        places = [self._partition_of(message) for message in checked]
        if self.settings.dedup_window_ms and any(message.rest[4] is not None for message in checked):
            return self._put_once(checked, places, word)
        results: list[Put | None] = [None] * len(checked)
        self._put_all(checked, places, range(len(checked)), results, word)
        return [put for put in results if put is not None]

    def check(self, messages: Sequence[bytes | Message]) -> None:
        """Raise InvalidRequest when one of the messages could not be stored."""
        for message in messages:
            self._checked(message)

    def parse(self, frame: Buffer) -> Frame:
        """The frame that the bytes are, checked in full. Raises InvalidFrame, MessageTooLarge."""
        if not isinstance(frame, bytes | bytearray | memoryview):
            raise InvalidRequest(f"a frame is bytes, not a {type(frame).__name__}")
        parsed = parse_only(frame, self._limits)
        check_foreign_frame(parsed, self._limits)
        return parsed

    def put_frame(
        self,
        frame: Frame,
        *,
        partition: int | None = None,
        priority: str = "normal",
        durability: Durability | None = None,
    ) -> Put:
        """Append a frame, which `parse` has checked, as it is.

        One that its producer sent before is answered as it was then. Raises Conflict.
        """
        lane = lane_number(priority)
        word = durability or self.settings.durability
        check_durability(word)
        check_partition(partition, self.settings)
        header = frame.header
        if header.producer_id and partition is None:
            raise InvalidRequest("a producer with an id says which partition its frames are for")
        number = self._router.partition_of(None) if partition is None else partition
        log = self.partitions[number].log(lane)
        if not header.producer_id:
            return Put(self.name, number, priority, log.append_frame(frame, durability=word))
        with self.seen.lock:
            self.seen.prepare()
            found = self.seen.find_batch(number, lane, header)
            offset = log.append_frame(frame, durability="os") if found is None else found
            if found is None:
                self.seen.note_batch(number, lane, header, offset)
        if word == "fsync":
            log.sync(offset + len(frame))
        return Put(self.name, number, priority, offset, duplicate=found is not None)

    def _put_values(self, values: Sequence[bytes], word: Durability) -> Sequence[Put]:
        if not isinstance(values, list):
            values = list(values)
        # Before the first is stored.
        longest = max(map(len, values))
        if longest > self._limits.message_bytes_max:
            self._checked(max(values, key=len))
        step = len(self.partitions)
        if step == 1:
            return Puts(self.name, NORMAL, [(0, self._append_values(0, values, word))], len(values))
        step = min(step, len(values))
        runs: list[tuple[int, int]] = []
        for start in range(step):
            number = self._router.partition_of(None)
            if any(number == taken for taken, _ in runs):
                # Others put at the same time; two runs of one log would not be one run.
                number = next(n for n in range(len(self.partitions)) if all(n != t for t, _ in runs))
            runs.append((number, self._append_values(number, values[start::step], word)))
        return Puts(self.name, NORMAL, runs, len(values))

    def _append_values(self, number: int, values: list[bytes], word: Durability) -> int:
        partition = self.partitions[number]
        log = partition.logs[NORMAL] or partition.log(NORMAL)
        if len(values) <= _FRAME_MESSAGES and sum(map(len, values)) <= _FRAME_BYTES:
            return log.append_many(values, durability=word)
        return log.append_batches(({"values": part} for part in _split(values)), durability=word)

    def _put_once(self, checked: list[Incoming], places: list[int], word: Durability) -> list[Put]:
        """Store messages unless one of the same id was stored within the window."""
        results: list[Put | None] = [None] * len(checked)
        first_of: dict[str, int] = {}
        new: list[int] = []
        with self.seen.lock:
            self.seen.prepare()
            now_us = self._clock.now_us()
            oldest_us = now_us - self.settings.dedup_window_ms * 1000
            for index, message in enumerate(checked):
                dedup_id = message.rest[4]
                if dedup_id is None or first_of.setdefault(dedup_id, index) == index:
                    seen = None if dedup_id is None else self.seen.find(dedup_id, oldest_us)
                    if seen is None:
                        new.append(index)
                    else:
                        results[index] = self._seen_put(seen)
            self._put_all(checked, places, new, results, "os")
            for index in new:
                dedup_id, put = checked[index].rest[4], results[index]
                assert put is not None
                if dedup_id is not None:
                    lane = lane_number(put.priority)
                    sighting = Sighting(now_us, put.partition, lane, put.offset, put.scheduled_id)
                    self.seen.note_id(dedup_id, sighting)
        for index, message in enumerate(checked):
            if results[index] is None:
                first = results[first_of[message.rest[4] or ""]]
                assert first is not None
                results[index] = first._replace(duplicate=True)
        puts = [put for put in results if put is not None]
        if word == "fsync":
            self.sync(puts)
        return puts

    def _seen_put(self, seen: Sighting) -> Put:
        return Put(self.name, seen.partition, LANES[seen.lane], seen.offset, True, seen.scheduled_id)

    def sync(self, puts: Sequence[Put]) -> None:
        """Wait for messages, and for those that they repeat, to be on stable storage."""
        ends: dict[tuple[int, int], int] = {}
        for put in puts:
            if put.offset is not None:
                place = (put.partition, lane_number(put.priority))
                ends[place] = max(ends.get(place, 0), put.offset + 1)
            else:
                self.delays.sync()
        for (partition, lane), end in ends.items():
            self.partitions[partition].log(lane).sync(end)

    def _put_all(
        self,
        checked: list[Incoming],
        places: list[int],
        indexes: Sequence[int],
        results: list[Put | None],
        word: Durability,
    ) -> None:
        """Store messages, each kind in its place, and note where each one is."""
        direct = list(indexes)
        delayed = [index for index in indexes if checked[index].due is not None]
        if delayed:
            ids = self.delays.put([self._delayed(checked[i], places[i]) for i in delayed], word)
            waiting = {index: id_ for index, id_ in zip(delayed, ids, strict=True) if id_ is not None}
            for index, scheduled_id in waiting.items():
                priority = LANES[checked[index].lane]
                results[index] = Put(self.name, places[index], priority, None, False, scheduled_id)
            direct = [index for index in indexes if index not in waiting]
        groups: dict[tuple[int, int], list[int]] = {}
        for index in direct:
            groups.setdefault((places[index], checked[index].lane), []).append(index)
        for (number, lane), members in groups.items():
            log = self.partitions[number].log(lane)
            base = self._append_group(log, [checked[index] for index in members], word)
            for offset, index in enumerate(members, base):
                results[index] = Put(self.name, number, LANES[lane], offset)

    def _append_group(self, log: Log, messages: list[Incoming], word: Durability) -> int:
        if len(messages) == 1:
            value, (key, headers, timestamp, expires_at, dedup_id) = messages[0][:2]
            return log.append(
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                expires_at=expires_at,
                dedup_id=dedup_id,
                durability=word,
            )
        now_us = self._clock.now_us()
        return log.append_batches(
            (_columns(part, now_us) for part in _split_messages(messages)), durability=word
        )

    def _delayed(self, message: Incoming, partition: int) -> Delayed:
        key, headers, timestamp, expires_at, dedup_id = message.rest
        assert message.due is not None
        return Delayed(
            due=message.due,
            partition=partition,
            priority=LANES[message.lane],
            value=message.value,
            key=key,
            headers=headers,
            timestamp=self._clock.now_us() if timestamp is None else timestamp,
            expires_at=expires_at,
            dedup_id=dedup_id,
        )

    def _checked(self, message: bytes | Message) -> Incoming:
        if not isinstance(message, Message):
            message = Message(message)
        return check_message(message, self.settings, self._limits, self._clock)

    def _partition_of(self, message: Incoming) -> int:
        if message.partition is not None:
            return message.partition
        return self._router.partition_of(message.rest[0])

    def _lane_log(self, partition: int, priority: str) -> Log:
        return self.partitions[partition].log(lane_number(priority))

    def _opened(self, start: int, end: int) -> list[Partition]:
        return [
            Partition(self._directory, self.name, number, self._storage) for number in range(start, end)
        ]

    def _storage_of(self, limits: StorageSettings) -> StorageSettings:
        if not is_dead_letter_topic(self.name):
            return limits
        # A message that was not too large must not become so by being given up.
        return replace(limits, message_bytes_max=limits.frame_bytes_max - _FRAME_OVERHEAD_BYTES)


def _split(values: list[bytes]) -> Iterator[list[bytes]]:
    """Values in parts that fit into a frame each."""
    part: list[bytes] = []
    size = 0
    for value in values:
        if part and (len(part) >= _FRAME_MESSAGES or size + len(value) > _FRAME_BYTES):
            yield part
            part, size = [], 0
        part.append(value)
        size += len(value)
    yield part


def _split_messages(messages: list[Incoming]) -> Iterator[list[Incoming]]:
    """Messages in parts that fit into a frame each, the larger ones with their headers."""
    part: list[Incoming] = []
    size = 0
    for message in messages:
        headers = message.rest[1]
        own = len(message.value) + len(message.rest[0] or b"") + 64
        own += sum(len(name) * 4 + len(content) + 8 for name, content in (headers or {}).items())
        if part and (len(part) >= _FRAME_MESSAGES or size + own > _FRAME_BYTES):
            yield part
            part, size = [], 0
        part.append(message)
        size += own
    yield part


def _columns(messages: list[Incoming], now_us: int) -> dict[str, list[object]]:
    keys, headers, timestamps, expires_at, dedup_ids = zip(*(m.rest for m in messages), strict=True)
    return {
        "values": [message.value for message in messages],
        "keys": list(keys),
        "headers": list(headers),
        "timestamp": [now_us if given is None else given for given in timestamps],
        "expires_at": list(expires_at),
        "dedup_ids": list(dedup_ids),
    }
