"""Putting messages: as frames where frames say the same, as raw bytes for one value, else as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from quivermq.client.core.call import Call, Flow
from quivermq.client.core.retry import asked
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import checked, checked_json, decoded, encoded, path_of
from quivermq.errors import InvalidRequest
from quivermq.frame import compression_of, encode, parse_header
from quivermq.model.checks import moment_us
from quivermq.model.json import FRAME, JSON, OCTETS, message_json, milliseconds, put_of
from quivermq.model.lanes import NORMAL, PRIORITIES, Priority
from quivermq.model.messages import Message, Put, Puts
from quivermq.model.stats import TopicInfo
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import Durability, StorageSettings
from quivermq.topic.incoming import Batch, message_bytes
from quivermq.topic.routing import Router
from quivermq.topic.splitting import FrameLimits

# As the embedded queue cuts its batches: what does not fit into a frame must not be stored in part.
FRAME_LIMITS = FrameLimits.of(StorageSettings())
# Well below the body that a broker takes, with a third more for base64.
_JSON_BYTES_MAX = 8 * 1024 * 1024
_JSON_MESSAGE_BYTES = 200
_JSON_MESSAGES_MAX = 100_000


class Publishing:
    """Flows that put messages into one topic."""

    def __init__(self, topics: TopicCalls, topic: str) -> None:
        self._topics = topics
        self._path = path_of("topics", topic, "messages")
        self._topic = topic
        self._router = Router(1)

    def put(self, message: Message, durability: Durability | None) -> Flow[Put]:
        """One message. It is sent again only when its dedup_id keeps it from being stored twice."""
        if message.key is None and not message.headers and message.value:
            return (yield from self._ask(_raw_call(self._path, message, durability)))
        call = self._call(
            encoded(checked_json(message)), JSON, durability, is_repeatable=message.dedup_id is not None
        )
        return (yield from self._ask(call))

    def put_many(self, given: list[bytes | Message], durability: Durability | None) -> Flow[Sequence[Put]]:
        """Many messages: those of one lane as a frame, unless the broker has to look at each of them."""
        if not given:
            return []
        batch = checked(given)
        # Whether an id is known, the broker knows; and when messages are due or expire, its clock tells.
        if batch.dedup_ids is batch.due is batch.expires_at is None and batch.fits(FRAME_LIMITS):
            info = yield from self._topics.remembered(self._topic)
            lane = self._only_lane(batch, info)
            if lane is not None:
                puts = yield from self._put_batch(batch, *lane, info, durability)
                if puts is not None:
                    return puts
        return (yield from self._put_json(given, durability))

    def put_frame(
        self,
        frame: bytes,
        partition: int | None,
        priority: Priority,
        durability: Durability | None,
    ) -> Flow[Put]:
        """A frame as it is. The broker knows a producer's frame again, should it come twice."""
        if not isinstance(frame, bytes | bytearray | memoryview):
            raise InvalidRequest(f"a frame is bytes, not a {type(frame).__name__}")
        call = self._call(
            bytes(frame),
            FRAME,
            durability,
            partition,
            priority,
            is_repeatable=bool(parse_header(frame).producer_id),
        )
        return (yield from self._ask(call))

    def _only_lane(self, batch: Batch, info: TopicInfo | None) -> tuple[int | None, int] | None:
        """The partition, None where any will do, and the lane of all messages; None if there are several.

        Those go in one call as JSON: of several frames, the disk may have no room for the second.
        """
        if info is not None and info.settings.ttl_ms is not None:
            return None
        lane = NORMAL if batch.lanes is None else batch.lanes[0]
        if batch.lanes is not None and set(batch.lanes) != {lane}:
            return None
        if batch.keys is None and batch.partitions is None:
            return None, lane
        # How many partitions a new topic will have, the broker knows.
        if info is None:
            return None
        if info.partitions == 1 and batch.partitions is None:
            return 0, lane
        # Another thread may have seen another number of partitions: each goes by its own.
        router = self._router
        if router.partitions != info.partitions:
            router = self._router = Router(info.partitions)
        partitions = set(batch.route(router))
        return (partitions.pop(), lane) if len(partitions) == 1 else None

    def _put_batch(
        self,
        batch: Batch,
        partition: int | None,
        lane: int,
        info: TopicInfo | None,
        durability: Durability | None,
    ) -> Flow[Sequence[Put] | None]:
        """All messages as one frame; None when the broker does not take it, and has nothing of it."""
        settings = TopicSettings() if info is None else info.settings
        codec = compression_of(settings.codec, settings.compression_level, settings.compression_bytes_min)
        frame = encode(**batch.columns(self._topics.clock.now_us()), codec=codec)
        priority = None if lane == NORMAL else PRIORITIES[lane]
        call = self._call(bytes(frame), FRAME, durability, partition, priority)
        if batch.keys is not None and info is not None:
            # Somebody may have added partitions meanwhile, and a key has one at a time.
            call = replace(call, query={**call.query, "partitions": str(info.partitions)})
        try:
            put = yield from self._ask(call)
        except InvalidRequest:
            # The topic, or what its broker takes, may have changed since somebody looked.
            self._topics.forget(self._topic)
            return None
        assert put.offset is not None, "a frame is never delayed"
        return Puts(put.topic, lane, [(put.partition, put.offset)], len(batch))

    def _put_json(self, messages: list[bytes | Message], durability: Durability | None) -> Flow[list[Put]]:
        """Messages that were checked, together as long as one body can hold them."""
        whole = [item if isinstance(item, Message) else Message(item) for item in messages]
        documents = list(map(message_json, whole))
        puts: list[Put] = []
        for start, end in _parts(whole):
            part = whole[start:end]
            call = self._call(
                encoded({"messages": documents[start:end]}),
                JSON,
                durability,
                is_repeatable=all(message.dedup_id is not None for message in part),
            )
            answer = yield from asked(call, self._topics.retry)
            puts += map(put_of, decoded(answer.body)["results"])
        return puts

    def _call(
        self,
        body: bytes,
        content_type: str,
        durability: Durability | None,
        partition: int | None = None,
        priority: Priority | None = None,
        *,
        is_repeatable: bool = False,
    ) -> Call:
        given = (("partition", partition), ("priority", priority), ("durability", durability))
        query = {name: str(value) for name, value in given if value is not None}
        return Call("POST", self._path, query, body, content_type, is_repeatable=is_repeatable)

    def _ask(self, call: Call) -> Flow[Put]:
        answer = yield from asked(call, self._topics.retry)
        return put_of(decoded(answer.body))


def _raw_call(path: str, message: Message, durability: Durability | None) -> Call:
    """One value as the body, and what else there is to say about it in the query."""
    incoming = checked([message])
    moments = [
        (name, None if given is None else moment_us(name, given))
        for name, given in (("deliver_at", message.deliver_at), ("timestamp", message.timestamp))
    ]
    periods = [
        (name, None if seconds is None else milliseconds(seconds))
        for name, seconds in (
            ("ttl_ms", message.ttl),
            ("delay_ms", message.delay),
            ("dedup_window_ms", message.dedup_window),
        )
    ]
    plain = [
        ("priority", None if message.priority == "normal" else message.priority),
        ("dedup_id", message.dedup_id),
        ("partition", message.partition),
        ("durability", durability),
    ]
    query = {name: str(value) for name, value in (*moments, *periods, *plain) if value is not None}
    is_repeatable = message.dedup_id is not None
    return Call("POST", path, query, incoming.values[0], OCTETS, is_repeatable=is_repeatable)


def _parts(messages: list[Message]) -> Iterator[tuple[int, int]]:
    """Ranges of messages that fit into one body each."""
    start, size = 0, 0
    for index, message in enumerate(messages):
        own = message_bytes(message.value, message.key, message.headers) + _JSON_MESSAGE_BYTES
        if index - start >= _JSON_MESSAGES_MAX or (index > start and size + own > _JSON_BYTES_MAX):
            yield start, index
            start, size = index, 0
        size += own
    yield start, len(messages)
