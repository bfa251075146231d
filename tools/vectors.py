"""Write the test vectors of the stored format: `python tools/vectors.py`.

They go to tests/fixtures/format/vectors.json, and some of them, annotated byte by byte, into
docs/reference/format.md. Every run writes the same bytes: bodies that a compressor made are kept here
as they once came out, because a later release of the compressor may make others. A change in the
output is a change of the format, and must not happen within a version.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

from annotation import annotated_frame, annotated_index, as_text
from crc32c import crc32c

from quivermq.errors import InvalidFrame
from quivermq.frame import Codec, Column, Flag, Frame, Header, Producer, encode
from quivermq.frame.header import VERSION
from quivermq.log.opening import gap_frames
from quivermq.segment.index import SparseIndex

ROOT = Path(__file__).parents[1]
VECTORS = ROOT / "tests/fixtures/format/vectors.json"
PAGE = ROOT / "docs/reference/format.md"

TIME = 1_700_000_000_000_000
APPENDED = TIME + 250_000

Vector = dict[str, Any]

# Frames that a reader accepts although no writer here makes them.
UNUSUAL = {"bytes-of-no-key", "repeated-header", "headers-of-nobody", "dead-letters"}

# What the compressors once made of the body of `compressible`.
STORED = {
    Codec.ZSTD: "28b52ffd20c0dd000090000000008c000000af007175697665722000020025156a068004",
    Codec.LZ4: "90000000008c000000af0900af00000071756976657220070091507665722000",
    Codec.GZIP: "1f8b08000000000000ffd5c5410900400800c18d72e5eee1534153d8c58a0aa6706119809c8b4d5de2dbbb02"
    "0dbb6d8c57c0000000",
}


def forged(raw: bytes, stored: bytes | None = None, /, **fields: int) -> bytes:
    """A frame of one message with this body and right checksums, whatever the fields claim."""
    stored = raw if stored is None else stored
    header = Header(
        body_crc=crc32c(stored),
        stored_bytes=len(stored),
        raw_bytes=len(raw),
        message_count=1,
        base_offset=0,
        append_time=APPENDED,
        timestamp_min=TIME,
        timestamp_max=TIME,
        producer_id=0,
        base_sequence=0,
        leader_epoch=0,
        producer_epoch=0,
        columns=Column.VALUE,
        flags=0,
        codec=Codec.NONE,
        version=VERSION,
    )._replace(**fields)
    return header.pack() + stored + bytes(-len(stored) % 8)


def int32s(*numbers: int) -> bytes:
    """Numbers as a buffer of offsets, padded."""
    return padded(pack(f"<{len(numbers)}i", *numbers))


def int64s(*numbers: int) -> bytes:
    return pack(f"<{len(numbers)}q", *numbers)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def compressible() -> Frame:
    """A batch that every codec makes smaller."""
    return encode([b"quiver " * 20, b"quiver " * 5], timestamp=TIME).stamped(3000, APPENDED)


def compressed(codec: Codec) -> Frame:
    frame = compressible()
    stored = bytes.fromhex(STORED[codec])
    header = frame.header._replace(codec=codec, stored_bytes=len(stored), body_crc=crc32c(stored))
    return Frame(header, stored)


def valid_frames() -> Iterator[tuple[str, str, bytes]]:
    """Name, what it shows, and the bytes."""
    yield from frames_of_each_column()
    yield from unusual_frames()
    for codec in STORED:
        yield codec.name.lower(), "the body is compressed", bytes(compressed(codec))
    reason = "the body's checksum does not match"
    side_file = Path("00000000000000000000.4096-8192.bytes")
    (gap,) = gap_frames((40, 70), side_file, reason, APPENDED)
    yield "gap", "a control frame: offsets 40 to 69 were lost, their bytes are in quarantine", bytes(gap)


def frames_of_each_column() -> Iterator[tuple[str, str, bytes]]:
    def vector(name: str, about: str, frame: Frame, base_offset: int = 0) -> tuple[str, str, bytes]:
        return name, about, bytes(frame.stamped(base_offset, APPENDED))

    one = encode([b"hello"], timestamp=TIME)
    yield vector("one-message", "the smallest frame there is, but for the value", one)
    many = encode([b"a", b"bc", b"", b"defghij", b"k" * 20], timestamp=TIME)
    yield vector("many-messages", "values of several lengths", many, 7)
    yield vector("empty-value", "an empty value is a value", encode([b""], timestamp=TIME), 8)
    keys = encode([b"1", b"2", b"3"], timestamp=TIME, keys=[None, b"", b"key"])
    yield vector("keys", "no key, an empty key, a key", keys, 100)
    headers = encode(
        [b"1", b"2", b"3"],
        timestamp=TIME,
        headers=[{"content-type": b"text/plain", "größe": b""}, None, {"鍵": b"\xff\x00"}],
    )
    yield vector("headers", "names beyond ASCII, an empty value, a message without headers", headers)
    times = encode([b"1", b"2", b"3"], timestamp=[TIME + 2, -1, TIME])
    yield vector("timestamps", "one timestamp a message, in no order, one before 1970", times)
    expiring = encode([b"1", b"2"], timestamp=TIME, expires_at=[None, TIME + 60_000_000])
    yield vector("expires-at", "the second message expires after a minute", expiring)
    dedup = encode([b"1", b"2", b"3"], timestamp=TIME, dedup_ids=["order-1", None, "№ 3"])
    yield vector("dedup-ids", "two messages have a deduplication id", dedup)
    origins = encode([b"1", b"2"], timestamp=TIME, origin_ids=["60a24181e4000-1-0", None])
    yield vector("origin-ids", "the first message was delayed, and keeps the id that it had there", origins)
    bits = encode([b"%d" % i for i in range(9)], timestamp=TIME, keys=[None] * 8 + [b"ninth"])
    yield vector("two-bytes-of-bits", "nine messages: the bitmap has a second byte", bits)
    every = encode(
        [b"first", b"second"],
        timestamp=[TIME, TIME + 1],
        keys=[b"k1", None],
        headers=[None, {"a": b"1", "b": b""}],
        expires_at=[TIME + 10, None],
        dedup_ids=[None, "id-2"],
        origin_ids=["60a24181e4001-2-3", None],
        producer=Producer(producer_id=77, epoch=3, base_sequence=1000),
    )
    yield "every-column", "every column at once, and a producer", bytes(every.stamped(41, APPENDED, 5))
    extreme = encode(
        [b"x", b"y"],
        timestamp=[-(2**63), 2**63 - 1],
        producer=Producer(producer_id=2**64 - 1, epoch=2**16 - 1, base_sequence=2**32 - 1),
    )
    largest = extreme.stamped(2**63 - 3, 2**63 - 1, 2**32 - 1)
    yield "largest-numbers", "every number of the header at its limit", bytes(largest)


def unusual_frames() -> Iterator[tuple[str, str, bytes]]:
    value = int32s(0, 1) + padded(b"v")
    hidden = forged(
        value + padded(b"\0") + int32s(0, 3) + padded(b"old"), columns=Column.VALUE | Column.KEY
    )
    yield "bytes-of-no-key", "a reader ignores the bytes of a key that is not there", hidden
    names, contents = int32s(0, 1, 2) + padded(b"nn"), int32s(0, 1, 2) + padded(b"12")
    twice = forged(value + int32s(0, 2) + names + contents, columns=Column.VALUE | Column.HEADERS)
    yield "repeated-header", "a name that is given twice: the last one counts", twice
    nobody = value + int32s(0, 0) + int32s(0) + int32s(0)
    empty = forged(nobody, columns=Column.VALUE | Column.HEADERS)
    yield "headers-of-nobody", "a column in which no message has anything", empty
    given_up = forged(value, flags=Flag.DEAD_LETTERS)
    yield "dead-letters", "the messages were given up, which only the queue says", given_up


def invalid_frames() -> Iterator[tuple[str, bytes]]:
    """Bytes that are no frame. What the reader says to them is asked of the reader."""
    yield from broken_bytes()
    yield from lying_headers()
    yield from lying_bodies()


def broken_bytes() -> Iterator[tuple[str, bytes]]:
    frame = bytes(encode([b"hello"], timestamp=TIME).stamped(0, APPENDED))
    yield "bad-magic", b"QVF2" + frame[4:]
    yield "bad-header-crc", flipped(frame, 24)
    yield "bad-body-crc", flipped(frame, 88)
    yield "half-a-header", frame[:40]
    yield "half-a-body", frame[:-8]
    yield "frame-padding", bytes(compressed(Codec.GZIP))[:-1] + b"\1"


def lying_headers() -> Iterator[tuple[str, bytes]]:
    raw = int32s(0, 1) + padded(b"v")
    yield "unknown-version", forged(raw, version=2)
    yield "unknown-codec", forged(raw, codec=4)
    yield "unknown-flag", forged(raw, flags=16)
    yield "unknown-column", forged(raw, columns=Column.VALUE | 128)
    yield "encrypted", forged(raw, bytes(12) + raw + bytes(16), flags=Flag.ENCRYPTED)
    yield "no-messages", forged(raw, message_count=0)
    yield "more-messages-than-bytes", forged(raw, message_count=4)
    yield "negative-offset", forged(raw, base_offset=-1)
    yield "last-offset-too-large", forged(raw, base_offset=2**63 - 1)
    yield "timestamps-swapped", forged(raw, timestamp_min=TIME + 1)
    yield "no-value-column", forged(raw, columns=Column.KEY)
    yield "control-with-columns", forged(raw, flags=Flag.CONTROL)
    yield "raw-length-differs", forged(raw, raw_bytes=24)
    stored = bytes.fromhex(STORED[Codec.ZSTD])
    fields = {"message_count": 2, "codec": int(Codec.ZSTD)}
    yield "bomb", forged(raw, stored, **fields, raw_bytes=2**32 - 8)
    yield "decompresses-to-more", forged(raw, stored, **fields, raw_bytes=184)
    yield "decompresses-to-less", forged(raw, stored, **fields, raw_bytes=200)
    yield "not-compressed", forged(raw, codec=Codec.ZSTD)


def lying_bodies() -> Iterator[tuple[str, bytes]]:
    value = int32s(0, 1) + padded(b"v")
    two = int32s(0, 1, 2) + padded(b"vw")
    yield "fewer-messages-than-offsets", forged(two)
    yield "more-messages-than-offsets", forged(value, message_count=2)
    yield "first-offset-not-0", forged(int32s(1, 1) + padded(b"v"))
    yield "offsets-backwards", forged(int32s(0, 2, 1) + padded(b"vw"), message_count=2)
    yield "offset-negative", forged(int32s(0, -1) + padded(b"v"))
    yield "offset-past-the-end", forged(int32s(0, 9) + padded(b"v"))
    yield "buffer-padding", forged(int32s(0, 1) + b"v" + bytes(6) + b"\1")
    yield "bytes-left-over", forged(value + bytes(8))
    bits = {"columns": Column.VALUE | Column.KEY}
    yield "bitmap-bits-behind-the-end", forged(value + padded(b"\3") + value, **bits)
    text = {"columns": Column.VALUE | Column.DEDUP_ID}
    yield "text-not-utf-8", forged(value + padded(b"\1") + int32s(0, 1) + padded(b"\xff"), **text)
    half = two + padded(b"\3") + int32s(0, 1, 2) + padded("é".encode())
    yield "string-inside-a-character", forged(half, **text, message_count=2)
    yield "timestamps-without-column", forged(value, timestamp_max=TIME + 1)
    times = {"columns": Column.VALUE | Column.TIMESTAMP, "message_count": 2}
    yield "timestamps-differ", forged(two + int64s(TIME, TIME + 1), **times, timestamp_max=TIME + 2)


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def index_files() -> Iterator[tuple[str, str, int, bytes]]:
    """Name, what it shows, the base offset of its segment, and the bytes."""
    index = SparseIndex(1000)
    yield "index-empty", "a new segment", 1000, index.encode()
    index.add(1040, TIME, 4096)
    index.add(1075, TIME + 5, 8248)
    index.add(1090, TIME + 5, 9000)
    whole = index.encode()
    yield "index", "two entries as the segment grew, and one at its end when it was closed", 1000, whole
    yield "index-torn", "the last entry was not written to its end: it does not count", 1000, whole[:-5]
    rotten = flipped(whole, 70)
    yield "index-rotten", "nothing from the second entry on counts", 1000, rotten
    yield "index-of-another-segment", "the base offset is not the segment's: no index at all", 2000, whole


def frame_vector(name: str, about: str, data: bytes) -> Vector:
    frame = Frame.parse(data)
    vector: Vector = {"name": name, "about": about, "hex": data.hex()}
    # Whether a writer makes just these bytes: not where somebody else's compressor had a say.
    vector["canonical"] = frame.header.codec == Codec.NONE and name not in UNUSUAL
    vector["header"] = {
        "magic": data[:4].decode(),
        "header_crc": int.from_bytes(data[4:8], "little"),
        **frame.header._asdict(),
    }
    if frame.is_control:
        vector["control"] = bytes(frame.raw).rstrip(b"\0").decode()
    else:
        vector["messages"] = [*messages(frame)]
    return vector


def messages(frame: Frame) -> Iterator[Vector]:
    """The messages; bytes in hex, headers as a list of pairs because a name may come twice."""
    pairs = frame.layout.headers
    for i, record in enumerate(frame.records()):
        message = record._asdict()
        message["value"] = record.value.hex()
        message["key"] = None if record.key is None else record.key.hex()
        message["headers"] = []
        if pairs is not None:
            own = slice(*pairs.offsets[i : i + 2])
            names, contents = pairs.names.values()[own], pairs.values.values()[own]
            message["headers"] = [[n.decode(), c.hex()] for n, c in zip(names, contents, strict=True)]
        yield message


def invalid_vector(name: str, data: bytes) -> Vector:
    try:
        Frame.parse(data).validate()
    except InvalidFrame as error:
        vector = {"name": name, "hex": data.hex(), "error": type(error).__name__}
        # What follows a colon is a decompressor's own words, which are not ours to promise.
        return vector | {"reason": error.reason.partition(": ")[0], "position": error.position}
    raise AssertionError(f"{name} is a valid frame")


def index_vector(name: str, about: str, base_offset: int, data: bytes) -> Vector:
    index = SparseIndex.load(data, base_offset)
    entries = None
    if index is not None:
        columns = zip(index.offsets, index.timestamps, index.positions, strict=True)
        entries = [dict(zip(("offset", "timestamp", "position"), row, strict=True)) for row in columns]
    return {
        "name": name,
        "about": about,
        "hex": data.hex(),
        "base_offset": base_offset,
        "entries": entries,
    }


def vectors() -> dict[str, list[Vector]]:
    """Everything that goes into the file."""
    return {
        "frames": [frame_vector(*each) for each in valid_frames()],
        "invalid_frames": [invalid_vector(*each) for each in invalid_frames()],
        "indexes": [index_vector(*each) for each in index_files()],
    }


def as_json(content: dict[str, list[Vector]]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def page_with_vectors(page: str, content: dict[str, list[Vector]]) -> str:
    """The page with each block behind a `vector` comment written anew."""
    frames = {each["name"]: each["hex"] for each in content["frames"]}
    indexes = {each["name"]: each["hex"] for each in content["indexes"]}

    def block(match: re.Match[str]) -> str:
        name = match[1]
        parts = (
            annotated_frame(bytes.fromhex(frames[name]))
            if name in frames
            else annotated_index(bytes.fromhex(indexes[name]))
        )
        return f"<!-- vector: {name} -->\n```text\n{as_text(parts)}```\n"

    return re.sub(r"<!-- vector: (\S+) -->\n```text\n.*?```\n", block, page, flags=re.DOTALL)


if __name__ == "__main__":
    everything = vectors()
    VECTORS.write_text(as_json(everything), encoding="utf-8")
    PAGE.write_text(page_with_vectors(PAGE.read_text(encoding="utf-8"), everything), encoding="utf-8")
