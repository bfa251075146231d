"""Any batch comes back as it went in, and no bytes whatever can make the reader do anything else than
read a frame or refuse it."""

import random
import tracemalloc
from typing import Any

import pytest
from fuzz.oracle import BYTES_MAX, check, is_unsupported, rows, with_checksums, with_lengths
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from unit.frame import independent_reader
from unit.frame.independent_reader import Invalid, Unsupported
from vectors import forged, invalid_frames, valid_frames

from quivermq.errors import InvalidFrame
from quivermq.frame import HEADER_BYTES, Codec, Frame, Producer, arrow_batch, encode, first_messages
from quivermq.frame.codec import decompress
from quivermq.model.messages import Record

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Long ones repeat, so that a codec has something to save.
BYTES = st.binary(max_size=40) | st.builds(bytes.__mul__, st.binary(max_size=3), st.integers(0, 200))
HEADERS = st.dictionaries(TEXT, BYTES, max_size=4)
CODECS = st.sampled_from(Codec)
COMPRESSING = st.sampled_from([Codec.ZSTD, Codec.LZ4, Codec.GZIP])
# Where checks have their limits.
NUMBERS = st.sampled_from([0, 1, 7, 8, 9, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 8])


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    """What somebody may hand to `encode`."""
    values = draw(st.lists(BYTES, min_size=1, max_size=20))

    def column(items: st.SearchStrategy[Any]) -> Any:
        whole = st.lists(items, min_size=len(values), max_size=len(values))
        return draw(st.none() | whole)

    times = column(INT64)
    return {
        "values": values,
        "timestamp": draw(INT64) if times is None else times,
        "keys": column(st.none() | BYTES),
        "headers": column(st.none() | HEADERS),
        "expires_at": column(st.none() | INT64),
        "dedup_ids": column(st.none() | TEXT),
        "origin_ids": column(st.none() | TEXT),
        "codec": draw(CODECS),
    }


def records_of(batch: dict[str, Any], base_offset: int = 0) -> list[Record]:
    """The messages of a batch, said once more without any bytes."""
    count = len(batch["values"])

    def column(name: str) -> list[Any]:
        return [None] * count if batch[name] is None else batch[name]

    times = batch["timestamp"]
    return [
        Record(offset, time, key, value, headers or {}, expires_at, dedup_id, origin_id)
        for offset, time, key, value, headers, expires_at, dedup_id, origin_id in zip(
            range(base_offset, base_offset + count),
            [times] * count if isinstance(times, int) else times,
            column("keys"),
            batch["values"],
            column("headers"),
            column("expires_at"),
            column("dedup_ids"),
            column("origin_ids"),
            strict=True,
        )
    ]


SAMPLES = [
    *(data for _, _, data in valid_frames()),
    *(data for _, data in invalid_frames() if len(data) >= HEADER_BYTES),
]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A frame with something wrong in it, more often than not behind right checksums."""
    fresh = batches().map(lambda batch: bytes(encode(**batch)))
    data = bytearray(draw(st.sampled_from(SAMPLES) | fresh))
    for _ in range(draw(st.integers(1, 4))):
        mutate(draw, data)
    repair = draw(st.sampled_from(["nothing", "checksums", "lengths", "compressed"]))
    if repair == "nothing" or len(data) < HEADER_BYTES:
        return bytes(data)
    if repair == "checksums":
        return with_checksums(bytes(data))
    return with_lengths(bytes(data), compressed=repair == "compressed")


def mutate(draw: st.DrawFn, data: bytearray) -> None:
    kind = draw(st.sampled_from(["flip", "byte", "word", "cut", "insert", "copy", "drop"]))
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    if kind == "flip" and data:
        data[at] ^= 1 << draw(st.integers(0, 7))
    elif kind == "byte" and data:
        data[at] = draw(st.integers(0, 255))
    elif kind == "word":
        at -= at % 4
        data[at : at + 4] = draw(NUMBERS).to_bytes(4, "little")
    elif kind == "cut":
        del data[at:]
    elif kind == "insert":
        data[at:at] = draw(st.binary(max_size=16))
    elif kind == "copy":
        start = draw(st.integers(0, len(data)))
        data[at : at + 8] = data[start : start + 8]
    elif kind == "drop":
        del data[at : at + draw(st.integers(1, 16))]


class TestBatches:
    @given(batches())
    def test_they_come_back_as_they_went_in(self, batch: dict[str, Any]) -> None:
        frame = encode(**batch)
        event(f"stored with {Codec(frame.header.codec).name}")
        parsed = Frame.parse(bytes(frame))
        assert parsed.header == frame.header
        assert parsed.records() == records_of(batch)
        assert bytes(parsed) == bytes(frame)

    @given(batches(), st.integers(0, 2**63 - 21), INT64, st.integers(0, 2**32 - 1))
    def test_a_place_in_a_log_changes_offsets_alone(
        self, batch: dict[str, Any], base_offset: int, append_time: int, leader_epoch: int
    ) -> None:
        frame = encode(**batch)
        stamped = frame.stamped(base_offset, append_time, leader_epoch)
        written = b"".join(frame.buffers_at(base_offset, append_time, leader_epoch))
        assert bytes(stamped) == written
        assert written[HEADER_BYTES:] == bytes(frame)[HEADER_BYTES:]
        assert Frame.parse(written).records() == records_of(batch, base_offset)

    @given(batches())
    def test_arrow_sees_the_same(self, batch: dict[str, Any]) -> None:
        data = bytes(encode(**batch))
        assert rows(arrow_batch(data)) == records_of(batch)
        looked_into = Frame.parse(data)
        looked_into.validate()
        assert rows(arrow_batch(looked_into)) == records_of(batch)

    @given(batches(), st.integers(1, 20))
    def test_the_first_of_them_are_the_first_of_them(self, batch: dict[str, Any], count: int) -> None:
        frame = encode(**batch).stamped(50, 60, 70)
        head = Frame.parse(bytes(first_messages(frame, count)))
        assert head.records() == records_of(batch, 50)[:count]
        assert head.header.append_time == 60
        if count >= len(frame):
            assert head.raw == frame.raw

    @given(batches())
    def test_a_column_that_nobody_uses_costs_nothing(self, batch: dict[str, Any]) -> None:
        used = {
            name: column
            for name, column in batch.items()
            if name in {"values", "timestamp", "codec"} or (column is not None and any_there(column))
        }
        assert bytes(encode(**used)) == bytes(encode(**batch))

    @given(batches(), st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))
    def test_another_reader_understands_them(
        self, batch: dict[str, Any], producer_id: int, epoch: int, base_sequence: int
    ) -> None:
        producer = Producer(producer_id, epoch, base_sequence)
        frame = encode(**{**batch, "codec": Codec.NONE}, producer=producer)
        header, messages = independent_reader.read_frame(bytes(frame))
        fields = frame.header._asdict()
        assert {name: header[name] for name in fields} == fields
        assert [message["value"] for message in messages] == [v.hex() for v in batch["values"]]
        assert [message["headers"] for message in messages] == [
            [[name, content.hex()] for name, content in headers.items()] for headers in frame.headers()
        ]
        assert [message["dedup_id"] for message in messages] == list(frame.dedup_ids())


def any_there(column: list[Any]) -> bool:
    return any(item not in (None, {}) for item in column)


class TestAnyBytes:
    @given(st.binary(max_size=400))
    @example(b"")
    @example(b"QVF1")
    def test_they_are_a_frame_or_refused(self, data: bytes) -> None:
        assert not check(data), "nobody guesses two checksums"

    @settings(max_examples=300)
    @given(mutations())
    def test_what_was_a_frame_before(self, data: bytes) -> None:
        event(f"accepted: {check(data)}")

    @given(
        raw=st.binary(max_size=200).map(lambda b: b + bytes(-len(b) % 8)),
        fields=st.fixed_dictionaries(
            {},
            optional={
                "message_count": st.integers(0, 10) | NUMBERS.filter(lambda n: n < 2**32),
                "columns": st.integers(0, 127),
                "flags": st.integers(0, 31),
                "codec": st.integers(0, 4),
                "raw_bytes": NUMBERS,
                "base_offset": INT64,
                "timestamp_min": INT64,
                "timestamp_max": INT64,
            },
        ),
    )
    def test_any_header_before_any_body(self, raw: bytes, fields: dict[str, int]) -> None:
        event(f"accepted: {check(forged(raw, **fields))}")

    @settings(max_examples=300)
    @given(mutations())
    def test_another_reader_agrees(self, data: bytes) -> None:
        if len(data) < HEADER_BYTES or data[78] != Codec.NONE:
            return
        verdict = "frame" if check(data) else "unsupported" if is_unsupported(data) else "invalid"
        try:
            header = independent_reader.read_header(data)
            # It reads one frame and nothing behind it; ours is asked for the first frame.
            end = HEADER_BYTES + (header["stored_bytes"] + 7) // 8 * 8
            independent_reader.read_frame(data[:end], raw_bytes_max=BYTES_MAX)
            other = "frame"
        except Unsupported:
            other = "unsupported"
        except Invalid:
            other = "invalid"
        assert other == verdict

    def test_mutations_reach_every_check(self) -> None:
        """Otherwise the tests above would only ever try the checksums."""
        chance = random.Random(7)
        seen = set()
        for _ in range(20_000):
            data = bytearray(chance.choice(SAMPLES))
            at = chance.randrange(12, len(data))
            data[at] = chance.choice([0, 1, 2, 4, 8, 16, 0x80, 0xC3, 0xFF, data[at] ^ 1])
            repaired = with_checksums(bytes(data)) if at < HEADER_BYTES else with_lengths(bytes(data))
            try:
                Frame.parse(repaired).validate()
            except InvalidFrame as error:
                seen.add(error.reason)
        assert [each for each in REASONS if not any(each in reason for reason in seen)] == []


# What a frame with right checksums can be refused for.
REASONS = [
    "are there",
    "this release knows version 1",
    "codec 4 is not known",
    "flags 0x10 are not all known",
    "columns 0x81 are not all known",
    "is out of range",
    "smallest timestamp is larger",
    "at least one message",
    "control frame has no columns",
    "value column is missing",
    "cannot fit into",
    "as long as the raw one",
    "padding behind the body",
    "cannot read encrypted frames",
    "when decompressed, the limit is",
    "does not decompress",
    "the header says",
    "runs past the end",
    "padding is not zero",
    "do not run upwards from 0",
    "bits behind its last message",
    "left over",
    "not UTF-8",
    "begins inside a character",
    "their column is missing",
    "other timestamps than the column",
]


class TestMemory:
    @given(COMPRESSING, st.binary(max_size=100), st.integers(0, 2**20), st.integers(0, 2**32 - 1))
    def test_a_lie_takes_no_more_than_its_header_was_granted(
        self, codec: Codec, stored: bytes, limit: int, raw_bytes: int
    ) -> None:
        data = forged(b"", stored, codec=codec, raw_bytes=raw_bytes)
        tracemalloc.start()
        try:
            with pytest.raises(InvalidFrame):
                Frame.parse(data, raw_bytes_max=limit).validate()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= (raw_bytes if raw_bytes <= limit else 0) + 50_000

    @settings(max_examples=20)
    @given(COMPRESSING, st.integers(1, 2**22))
    def test_the_truth_takes_no_more_either(self, codec: Codec, length: int) -> None:
        data = bytes(encode([bytes(length)], timestamp=1, codec=codec))
        tracemalloc.start()
        try:
            raw = Frame.parse(data).raw
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(raw) >= length
        assert peak <= len(raw) + 50_000

    @given(COMPRESSING, st.binary(max_size=300), st.integers(0, 5000))
    def test_a_decompressor_says_invalid_frame_and_nothing_else(
        self, codec: Codec, stored: bytes, raw_bytes: int
    ) -> None:
        try:
            raw = decompress(stored, codec, raw_bytes)
        except InvalidFrame:
            event("refused")
        else:
            assert len(raw) == raw_bytes
