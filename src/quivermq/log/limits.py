"""What a call and a whole frame must keep to before anything enters a log."""

from collections.abc import Iterable, Sequence
from operator import add, sub
from typing import get_args

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, InvalidRequest, MessageTooLarge, UnsupportedFrame
from quivermq.frame import Column, Frame, Layout, has_removed
from quivermq.settings import Durability, StorageSettings

_DURABILITIES = get_args(Durability)


def check_durability(word: str) -> None:
    """Raise InvalidRequest for a word that promises nothing."""
    if word not in _DURABILITIES:
        raise InvalidRequest(f"durability is one of {', '.join(_DURABILITIES)}, not {word!r}")


def check_frame(frame: Frame, settings: StorageSettings) -> None:
    """Raise InvalidRequest when the frame, or a value in it, is over a limit of the settings."""
    header = frame.header
    if header.message_count > settings.frame_messages_max:
        # Empty messages compress to nothing: without this, a small frame could take all the memory.
        raise InvalidRequest(
            f"the batch has {header.message_count} messages, the limit is {settings.frame_messages_max}:"
            " send less at once or raise frame_messages_max"
        )
    if header.frame_bytes > settings.frame_bytes_max:
        raise MessageTooLarge(
            "the batch",
            size_bytes=header.frame_bytes,
            limit_bytes=settings.frame_bytes_max,
            setting="frame_bytes_max",
        )
    # Only a body that is larger than one message may be can hide one that is too large.
    if header.raw_bytes > settings.message_bytes_max:
        largest = max(_message_bytes(frame.layout))
        if largest > settings.message_bytes_max:
            raise MessageTooLarge(
                "a message of the batch",
                size_bytes=largest,
                limit_bytes=settings.message_bytes_max,
                setting="message_bytes_max",
            )


def _message_bytes(layout: Layout) -> Iterable[int]:
    """The size of each message: value, key, headers and deduplication id, all that its sender gave it."""
    sizes: Iterable[int] = _differences(layout.value.offsets)
    for column in (layout.key, layout.dedup_id):
        if column is not None:
            sizes = map(add, sizes, _differences(column.offsets))
    if layout.headers is not None:
        for texts in (layout.headers.names, layout.headers.values):
            ends = map(texts.offsets.__getitem__, layout.headers.offsets)
            sizes = map(add, sizes, _differences(list(ends)))
    return sizes


def _differences(offsets: Sequence[int]) -> Iterable[int]:
    return map(sub, offsets[1:], offsets)


def parse_only(buffer: Buffer, settings: StorageSettings) -> Frame:
    """The one frame that the bytes are. Raises InvalidFrame when there is more or less."""
    frame = Frame.parse(
        buffer,
        frame_bytes_max=settings.frame_bytes_max,
        raw_bytes_max=settings.frame_raw_bytes_max,
    )
    if frame.header.frame_bytes != len(buffer):
        raise InvalidFrame("something follows the frame", position=frame.header.frame_bytes)
    return frame


def check_foreign_frame(frame: Frame, settings: StorageSettings) -> None:
    """Check a frame that somebody else encoded: everything it claims, and the limits."""
    if frame.is_control:
        raise InvalidFrame("control frames are written by the log alone", position=0)
    if frame.header.flags:
        # Each says something that others believe, such as that these are dead letters.
        raise UnsupportedFrame(
            f"flags {frame.header.flags:#x} are reserved: only the queue itself sets them", position=0
        )
    if frame.header.columns & Column.ORIGIN_ID:
        raise UnsupportedFrame(
            "the column of origin ids is reserved: only the queue itself says where a message was before",
            position=0,
        )
    # The limits of the header first: what is over them is not decompressed to find that out.
    check_frame(frame, settings)
    frame.validate()
    if has_removed(frame):
        raise InvalidFrame("expires_at has a moment that only compaction may write", position=0)
