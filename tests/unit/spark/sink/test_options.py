"""The options of a write."""

import pickle
from typing import Any

import pytest

from quivermq.errors import InvalidName, InvalidRequest
from quivermq.frame import Codec
from quivermq.spark.options import SourceOptions
from quivermq.spark.sink.options import SinkOptions


def parsed(**given: Any) -> SinkOptions:
    return SinkOptions.of(SourceOptions.parse({"server": "http://127.0.0.1:1", **given}))


def test_the_defaults_and_everything() -> None:
    plain = parsed()
    assert (plain.topic, plain.batch_messages, plain.codec, plain.task_rate) == (None, 10_000, None, None)
    assert str(plain.reader) == "http://127.0.0.1:1"
    whole = parsed(
        topic="out", durability="os", compression="zstd", batchmessages="5", ratelimit="100",
        ratelimittasks="4", writeid="a b",
    )  # fmt: skip
    assert (whole.topic, whole.durability, whole.codec) == ("out", "os", Codec.ZSTD)
    assert (whole.batch_messages, whole.task_rate, whole.write_id) == (5, 25.0, "a b")
    assert pickle.loads(pickle.dumps(whole)) == whole


def test_a_directory_is_a_path() -> None:
    options = SinkOptions.of(SourceOptions.parse({"path": "/some/where"}))
    assert str(options.reader) == "/some/where"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batchmessages": "none"}, "batchMessages"),
        ({"batchmessages": "1000001"}, "batchMessages"),
        ({"ratelimit": "0"}, "rateLimit"),
        ({"durability": "maybe"}, "maybe"),
        ({"compression": "rar"}, "rar"),
        ({"writeid": "x" * 201}, "writeId"),
        ({"path": "/x"}, "path"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parsed(**given)


def test_a_topic_has_a_name() -> None:
    with pytest.raises(InvalidName):
        parsed(topic="a/b")
