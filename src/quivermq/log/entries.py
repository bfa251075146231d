"""Single messages on their way into a frame.

Messages that are appended one by one gather as entries, and become one frame when they are written.
Each is checked when it comes in: one bad message must not spoil the frame of its neighbours.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import add, sub
from typing import Any, get_args

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, InvalidRequest, MessageTooLarge, UnsupportedFrame
from quivermq.frame import AnyCodec, Column, EntryFields, Frame, Headers, Layout, encode, has_removed
from quivermq.frame.columns import CheckedHeaders
from quivermq.settings import Durability, StorageSettings

Entry = tuple[bytes, EntryFields | None]

NOTHING = EntryFields()

# As in `Put`: the class's own constructor would cost more than the rest.
_rest = partial(tuple.__new__, EntryFields)

_INT64_MAX = 2**63 - 1
_BYTES = {bytes}

# What a message takes in a frame besides its own bytes, at most: its place in every column, its share
# of the bitmaps; and a header its place in two more.
VALUE_OVERHEAD_BYTES = 4
_REST_OVERHEAD_BYTES = 32
HEADER_OVERHEAD_BYTES = 8
# What a frame takes besides: the ends of its columns, padding, and the id that a delayed message gets when
# it comes to its lane.
_FRAME_OVERHEAD_BYTES = 192
ENTRY_OVERHEAD_BYTES = _FRAME_OVERHEAD_BYTES + VALUE_OVERHEAD_BYTES + _REST_OVERHEAD_BYTES


def checked_entry(
    value: bytes,
    key: bytes | None,
    headers: Headers | None,
    timestamp: int | None,
    expires_at: int | None,
    dedup_id: str | None,
    settings: StorageSettings,
) -> Entry:
    """The message as an entry that is certain to be encodable. Raises InvalidRequest."""
    if type(value) is not bytes:
        value = frozen("value", value)
    size = len(value)
    overhead = ENTRY_OVERHEAD_BYTES
    if key is not None:
        if type(key) is not bytes:
            key = frozen("key", key)
        size += len(key)
    if headers:
        headers = frozen_headers(headers)
        size += headers.size
        overhead += HEADER_OVERHEAD_BYTES * len(headers)
    elif key is None and timestamp is None and expires_at is None and dedup_id is None:
        if size > settings.message_bytes_max:
            check_size(size, settings.message_bytes_max, "message_bytes_max")
        return value, None
    if dedup_id is not None:
        size += len(check_text("dedup_id", dedup_id))
    if size > settings.message_bytes_max or size + overhead > settings.frame_raw_bytes_max:
        check_size(size, settings.message_bytes_max, "message_bytes_max")
        # With very many headers, what the frame adds to them counts as well.
        check_size(size + overhead, settings.frame_raw_bytes_max, "frame_raw_bytes_max")
    return value, _rest((key, headers, timestamp, expires_at, dedup_id))


def check_size(size: int, limit: int, setting: str) -> None:
    """Raise MessageTooLarge for a message over a limit."""
    if size > limit:
        raise MessageTooLarge("the message", size_bytes=size, limit_bytes=limit, setting=setting)


def _entry_bytes(value: bytes, rest: EntryFields | None) -> int:
    """How much a frame grows by a message, at most."""
    size = len(value) + VALUE_OVERHEAD_BYTES
    if rest is None:
        return size
    size += _REST_OVERHEAD_BYTES + len(rest.key or b"") + len((rest.dedup_id or "").encode())
    if headers := rest.headers:
        size += headers_bytes(headers) + HEADER_OVERHEAD_BYTES * len(headers)
    return size


def headers_bytes(headers: Headers) -> int:
    """How much names and contents take."""
    if isinstance(headers, CheckedHeaders):
        return headers.size
    names = "".join(headers)
    size = len(names) if names.isascii() else len(names.encode())
    return size + sum(map(len, headers.values()))


class EntryBatch:
    """Messages on their way into a frame.

    Most are just a value, so the rest of a message is kept apart, by its index: a list of bytes costs
    the garbage collector nothing, a list of tuples would be walked over again and again.
    """

    __slots__ = ("bytes", "rests", "values")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.values: list[bytes] = []
        self.rests: dict[int, EntryFields] = {}
        self.bytes = 0
        for value, rest in entries:
            self.add(value, rest)

    def add(self, value: bytes, rest: EntryFields | None) -> None:
        if rest is None:
            self.bytes += len(value) + VALUE_OVERHEAD_BYTES
        else:
            self.rests[len(self.values)] = rest
            self.bytes += _entry_bytes(value, rest)
        self.values.append(value)

    def frames(self, now_us: int, codec: AnyCodec, settings: StorageSettings) -> list[Frame]:
        """The messages in as few frames as the size of a batch allows."""
        parts = [self] if self.bytes <= settings.batch_bytes else self._parts(settings.batch_bytes)
        return [frame for part in parts for frame in part._frames(now_us, codec, settings)]

    def _frames(self, now_us: int, codec: AnyCodec, settings: StorageSettings) -> list[Frame]:
        try:
            return [self._frame(now_us, codec, settings)]
        except MessageTooLarge:
            # A column that one message has takes room for all: under a narrow limit, that is too much.
            halves = self._parts(self.bytes // 2)
            assert len(halves) > 1, "a single message was checked when it came in"
            return [frame for half in halves for frame in half._frames(now_us, codec, settings)]

    def _frame(self, now_us: int, codec: AnyCodec, settings: StorageSettings) -> Frame:
        values, raw_bytes_max = self.values, settings.frame_raw_bytes_max
        if not self.rests:
            return encode(values, timestamp=now_us, codec=codec, raw_bytes_max=raw_bytes_max)
        rows = map(self.rests.get, range(len(values)), repeat(NOTHING))
        keys, headers, timestamps, expires_at, dedup_ids = zip(*rows, strict=True)
        timestamp: int | list[int] = now_us
        if timestamps.count(None) < len(timestamps):
            timestamp = [now_us if given is None else given for given in timestamps]
        return encode(
            values,
            timestamp=timestamp,
            keys=keys,
            headers=headers,
            expires_at=expires_at,
            dedup_ids=dedup_ids,
            codec=codec,
            raw_bytes_max=raw_bytes_max,
        )

    def _parts(self, bytes_max: int) -> list["EntryBatch"]:
        parts = [EntryBatch()]
        for index, value in enumerate(self.values):
            rest = self.rests.get(index)
            if parts[-1].values and parts[-1].bytes + _entry_bytes(value, rest) > bytes_max:
                parts.append(EntryBatch())
            parts[-1].add(value, rest)
        return parts


def frozen(what: str, given: Any) -> bytes:
    """The bytes as they are now: the caller may go on to change what it handed over."""
    if isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise InvalidRequest(f"{what} is a {type(given).__name__} where bytes belong: encode it first")


def frozen_headers(headers: Any) -> CheckedHeaders:
    """The headers as they are now. Raises InvalidRequest."""
    if type(headers) is dict and set(map(type, headers.values())) <= _BYTES:
        try:
            return CheckedHeaders.of(headers)
        except (TypeError, ValueError):
            return _frozen_one_by_one(headers)
    return _frozen_one_by_one(headers)


def _frozen_one_by_one(headers: Any) -> CheckedHeaders:
    """Slower, but tells what is wrong, and copies what may change."""
    try:
        # Once, because it may be an iterator.
        items = list(headers.items())
    except AttributeError:
        kind = type(headers).__name__
        raise InvalidRequest(f"headers is a {kind} where a mapping of str to bytes belongs") from None
    for name, _ in items:
        check_text("a header's name", name)
    return CheckedHeaders.of({name: frozen(f"header {name!r}", content) for name, content in items})


def check_text(what: str, given: Any) -> bytes:
    """A text as it is stored. Raises InvalidRequest."""
    if not isinstance(given, str):
        raise InvalidRequest(f"{what} is a {type(given).__name__} where a str belongs")
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} cannot be written as UTF-8: {error.reason}") from None


def check_time(what: str, given: Any) -> None:
    """Raise InvalidRequest unless it is a moment."""
    if not isinstance(given, int) or isinstance(given, bool) or not -_INT64_MAX <= given <= _INT64_MAX:
        raise InvalidRequest(f"{what} must be unix microseconds as a 64-bit int, not {given!r}")


DURABILITIES: tuple[Durability, ...] = get_args(Durability)


def check_durability(word: str) -> None:
    """Raise InvalidRequest for a word that promises nothing."""
    if word not in DURABILITIES:
        raise InvalidRequest(f"durability is one of {', '.join(DURABILITIES)}, not {word!r:.80}")


def durability_of(word: str) -> Durability:
    """The durability of that name. Raises InvalidRequest."""
    check_durability(word)
    return next(known for known in DURABILITIES if known == word)


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
