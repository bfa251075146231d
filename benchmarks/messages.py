"""Messages of either shape, and how they are handed over: one by one, as columns, as the bytes of a frame.

A plain message is bytes, a real one is a `quivermq.Message`.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import quivermq
from benchmarks.shape import KEY_BYTES, MESSAGE_BYTES, TIME_US, TRACE, TYPE, TYPES, Shape
from quivermq.frame import encode

AnyMessage = bytes | quivermq.Message
# The values of a batch, and its other columns by the names that `append_many` and `encode` give them.
Columns = tuple[list[bytes], dict[str, Any]]

_SEED = 20
_ROTATED = 1000
_TRACE_BYTES = 8


def random_messages(number: int, shape: Shape = "plain") -> list[AnyMessage]:
    """Distinct messages without any pattern. Those of both shapes have the same values."""
    random = Random(_SEED)
    return dressed([random.randbytes(MESSAGE_BYTES) for _ in range(number)], shape)


def json_messages(number: int, shape: Shape = "plain") -> list[AnyMessage]:
    """Messages of exactly the same size that look like events."""
    random = Random(_SEED)
    return dressed([_event(random, place) for place in range(number)], shape)


def dressed(values: Iterable[bytes], shape: Shape, time_us: int = TIME_US) -> list[AnyMessage]:
    """Messages of that shape with these values, the first of that time."""
    if shape == "plain":
        return list(values)
    random = Random(_SEED)
    return [
        quivermq.Message(
            value,
            key=random.randbytes(KEY_BYTES),
            headers={TRACE: random.randbytes(_TRACE_BYTES).hex().encode(), TYPE: random.choice(TYPES)},
            timestamp=time_us + place,
        )
        for place, value in enumerate(values)
    ]


def batches_of(size: int, total: int, shape: Shape = "plain") -> list[list[AnyMessage]]:
    """`total` messages in batches; the messages repeat, the lists are distinct."""
    messages = random_messages(max(_ROTATED, size), shape)
    return [_rotated(messages, number * size, size) for number in range(total // size)]


def contents(messages: Iterable[Any]) -> list[Any]:
    """What there is to compare of messages of either shape, as they were put or as they came back."""
    return [message if isinstance(message, bytes) else content(message) for message in messages]


def content(message: Any) -> tuple[object, ...]:
    """All that a real message has. Whoever gets one looks at all of it."""
    return message.value, message.key, message.headers, message.timestamp


def call_each(call: Callable[..., object], messages: Sequence[AnyMessage]) -> None:
    """Hand messages of one shape to a `put` or an `append`, one by one."""
    if messages and isinstance(messages[0], bytes):
        for value in messages:
            call(value)
        return
    for message in messages:
        assert isinstance(message, quivermq.Message)
        call(message.value, key=message.key, headers=message.headers, timestamp=message.timestamp)


def columns_of(messages: Sequence[AnyMessage]) -> Columns:
    """A batch of one shape as columns; a plain one has no others than the values."""
    real = [message for message in messages if isinstance(message, quivermq.Message)]
    if not real:
        return [message for message in messages if isinstance(message, bytes)], {}
    others: dict[str, Any] = {
        "keys": [message.key for message in real],
        "headers": [message.headers for message in real],
        "timestamp": [message.timestamp for message in real],
    }
    return [message.value for message in real], others


def frame_bytes(messages: Sequence[AnyMessage], time_us: int = TIME_US) -> bytes:
    """What the log writes for a batch; plain messages are all of that time."""
    values, others = columns_of(messages)
    return bytes(encode(values, **{"timestamp": time_us, **others}))


def _event(random: Random, place: int) -> bytes:
    user, cents = random.randrange(100_000), random.randrange(100_000)
    kind = random.choice(("click", "view", "order", "login"))
    head = f'{{"id":{place},"user":"u{user}","kind":"{kind}","at":{TIME_US + place},"amount":{cents / 100}'
    return f'{head},"tag":"{random.randbytes(50).hex()}'.encode()[: MESSAGE_BYTES - 2] + b'"}'


def _rotated(messages: Sequence[AnyMessage], start: int, size: int) -> list[AnyMessage]:
    start %= len(messages)
    return [*messages[start : start + size], *messages[: max(0, start + size - len(messages))]]
