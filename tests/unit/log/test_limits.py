"""What must not enter a log, whoever sends it."""

from pathlib import Path

import pytest

from quivermq.errors import InvalidFrame, InvalidRequest, MessageTooLarge
from quivermq.frame import Codec, encode, encode_control
from quivermq.log import Log
from quivermq.settings import StorageSettings

SETTINGS = StorageSettings(
    batch_messages=10,
    frame_messages_max=100,
    message_bytes_max=1000,
    frame_bytes_max=8192,
    batch_bytes=1000,
)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log", SETTINGS)


def test_a_small_frame_of_very_many_messages_is_refused_unopened(log: Log) -> None:
    frame = encode([b""] * 101, timestamp=1, codec=Codec.ZSTD)
    with log:
        with pytest.raises(InvalidRequest, match="frame_messages_max"):
            log.append_frame(bytes(frame))
        with pytest.raises(InvalidRequest, match="frame_messages_max"):
            log.append_many([b""] * 101)
        assert log.append_many([b""] * 100) == 0
        assert log.end == 100


def test_a_large_message_cannot_hide_in_a_batch(log: Log) -> None:
    values = [b"x", b"y" * 1001, b"z"]
    with log:
        for send in (log.append_many, lambda values: log.append_frame(encode(values, timestamp=1))):
            with pytest.raises(MessageTooLarge) as caught:
                send(values)
            assert (caught.value.size_bytes, caught.value.setting) == (1001, "message_bytes_max")
        assert log.end == 0


def test_a_large_batch_is_refused(log: Log) -> None:
    with log, pytest.raises(MessageTooLarge) as caught:
        log.append_many([b"x" * 900] * 10)
    assert caught.value.setting == "frame_bytes_max"


def test_a_control_frame_from_outside_is_refused(log: Log) -> None:
    with log, pytest.raises(InvalidFrame, match="log alone"):
        log.append_frame(encode_control(b"{}", count=1, timestamp=1))


def test_bytes_behind_the_frame_are_refused(log: Log) -> None:
    frame = bytes(encode([b"x"], timestamp=1))
    with log:
        with pytest.raises(InvalidFrame) as caught:
            log.append_frame(frame + b"more")
        assert caught.value.position == len(frame)
        assert log.append_frame(frame) == 0


def test_a_word_that_promises_nothing_is_refused(log: Log) -> None:
    with log:
        with pytest.raises(InvalidRequest, match="fsink"):
            log.append(b"x", durability="fsink")  # type: ignore[arg-type]  # What a typing error sends.
        with pytest.raises(InvalidRequest, match="fsink"):
            log.append_many([b"x"], durability="fsink")  # type: ignore[arg-type]
        assert log.end == 0
