"""Putting messages: as a frame where a frame says the same, as raw bytes for one, else as JSON."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from quivermq.client.core.call import FRAME, JSON, OCTETS, Call, Flow
from quivermq.client.core.retry import asked
from quivermq.client.core.topics import TopicCalls
from quivermq.client.core.wire import checked, decoded, encoded, message_json, milliseconds, path_of, put_of
from quivermq.errors import InvalidRequest
from quivermq.frame import compression_of, encode
from quivermq.log.entries import check_durability
from quivermq.model.checks import moment_us
from quivermq.model.lanes import LANE_NUMBERS, lane_number
from quivermq.model.messages import Message, Put, Puts
from quivermq.model.stats import TopicInfo
from quivermq.model.topic_settings import TopicSettings
from quivermq.settings import Durability
from quivermq.topic.incoming import message_bytes

# As the embedded queue cuts its batches; a frame of that size is within the limits of any broker.
FRAME_MESSAGES_MAX = 10_000
FRAME_BYTES_MAX = 4 * 1024 * 1024
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

    def put(self, message: Message, durability: Durability | None) -> Flow[Put]:
        """One message. It is sent again only when its dedup_id keeps it from being stored twice."""
        if durability is not None:
            check_durability(durability)
        if message.key is None and not message.headers and message.value:
            return (yield from self._ask(_raw_call(self._path, message, durability)))
        call = self._call(
            encoded(message_json(message)), JSON, durability, is_repeatable=message.dedup_id is not None
        )
        return (yield from self._ask(call))

    def put_many(
        self, messages: Iterable[bytes | Message], durability: Durability | None
    ) -> Flow[Sequence[Put]]:
        """Many messages. Plain values that fit into one frame go as one."""
        if isinstance(messages, bytes | bytearray | memoryview | str) or not isinstance(messages, Iterable):
            raise InvalidRequest("put_many takes a list of messages: for a single one there is put")
        given = messages if isinstance(messages, list) else list(messages)
        if durability is not None:
            check_durability(durability)
        if not given:
            return []
        if set(map(type, given)) == {bytes} and _fits(given):
            info = yield from self._topics.remembered(self._topic)
            # A frame is stored as it is: when its messages expire, it has to say itself, and the broker's
            # clock is the one that counts.
            if info is None or info.settings.ttl_ms is None:
                return (yield from self._put_values(cast(list[bytes], given), info, durability))
        return (yield from self._put_json(given, durability))

    def put_frame(
        self,
        frame: bytes,
        partition: int | None,
        priority: str,
        durability: Durability | None,
        *,
        is_repeatable: bool = False,
    ) -> Flow[Put]:
        """A frame as it is."""
        if durability is not None:
            check_durability(durability)
        lane_number(priority)
        if not isinstance(frame, bytes | bytearray | memoryview):
            raise InvalidRequest(f"a frame is bytes, not a {type(frame).__name__}")
        call = self._call(bytes(frame), FRAME, durability, partition, priority, is_repeatable=is_repeatable)
        return (yield from self._ask(call))

    def _put_values(
        self, values: list[bytes], info: TopicInfo | None, durability: Durability | None
    ) -> Flow[Sequence[Put]]:
        settings = TopicSettings() if info is None else info.settings
        codec = compression_of(settings.codec, settings.compression_level, settings.compression_bytes_min)
        frame = encode(values, timestamp=self._topics.clock.now_us(), codec=codec)
        put = yield from self._ask(self._call(bytes(frame), FRAME, durability))
        assert put.offset is not None, "a frame is never delayed"
        return Puts(put.topic, LANE_NUMBERS[put.priority], [(put.partition, put.offset)], len(values))

    def _put_json(self, messages: list[bytes | Message], durability: Durability | None) -> Flow[list[Put]]:
        """All are checked before the first is sent; together they go as long as one body can hold them."""
        whole = [item if isinstance(item, Message) else Message(item) for item in messages]
        documents = [message_json(message) for message in whole]
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
        priority: str | None = None,
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
    incoming = checked(message)
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


def _fits(values: list[bytes | Message]) -> bool:
    return len(values) <= FRAME_MESSAGES_MAX and sum(map(len, cast(list[bytes], values))) <= FRAME_BYTES_MAX


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
