"""Batches of FluxMQ: every codec, every shape of a record, and what is whole but makes no sense."""

from pathlib import Path
from struct import pack

import cramjam
import pytest
from support import flux_files as flux
from support.flux_files import Rec
from support.s2_blocks import block, far, literal, repeat, uvarint
from support.sources import DISK, offsets, only, problems

from quivermq.errors import InvalidRequest
from quivermq.importers import fluxmq_batches
from quivermq.importers.fluxmq import open_source
from quivermq.importers.model import ImportSource, Item

CODECS = pytest.mark.parametrize("codec", [flux.NONE, flux.S2, flux.ZSTD])


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def read(path: Path, *batches: bytes) -> tuple[list[Item], ImportSource]:
    """The items of a queue that has these batches in its only segment."""
    flux.write_segment(path / "queues" / "q", 0, *batches)
    source = open_source(path, DISK)
    [topic] = source.topics
    return list(topic.items()), source


@CODECS
def test_every_shape_of_a_record(source_path: Path, codec: int) -> None:
    records = [
        Rec(b"plain"),
        Rec(None, None),
        Rec(b"", b""),
        Rec(b"\x00\xff" * 300, b"k" * 200, {"a": b"", "": b"x", "ž": b"\xff", "n" * 200: b"v" * 300}),
        Rec(b"earlier", b"key", delta_ms=-5000),
        Rec(b"later", delta_ms=86_400_000 * 400),
    ]
    items, source = read(source_path, flux.batch(0, records, codec=codec))
    assert offsets(items) == list(range(6))
    for item, rec in zip(items, records, strict=True):
        assert item.value == (rec.value or b"")
        assert item.key == rec.key
        assert item.headers == rec.headers
        assert item.timestamp_us == (flux.BASE_MS + rec.delta_ms) * 1000
        assert (item.id, item.partition, item.level) == (str(item.identity), 0, "normal")
    assert source.findings.count == 0


def test_no_key_and_an_empty_key_are_told_apart(source_path: Path) -> None:
    items, _ = read(source_path, flux.batch(0, [Rec(b"a", None), Rec(b"b", b"")]))
    assert [item.key for item in items] == [None, b""]


@CODECS
def test_the_flag_decides_about_compression_and_not_the_codec(source_path: Path, codec: int) -> None:
    batches = [
        flux.batch(0, flux.values(0, 3), codec=codec, is_compressed=False),
        flux.batch(3, flux.values(3, 3), codec=codec, is_compressed=codec != flux.NONE),
        # A codec of none is no compression, whatever the flag says.
        flux.batch(6, flux.values(6, 3), codec=flux.NONE, is_compressed=True),
    ]
    items, source = read(source_path, *batches)
    assert [item.value for item in items] == [rec.value for rec in flux.values(0, 9)]
    assert source.findings.count == 0


@pytest.mark.parametrize("flags", range(0, 32, 2))
def test_other_flags_change_nothing(source_path: Path, flags: int) -> None:
    records = [Rec(b"v", b"k", {"h": b"1"}, delta_ms=7)]
    [item], source = read(source_path, flux.batch(0, records, flags=flags))
    assert (item.value, item.key, item.headers) == (b"v", b"k", {"h": b"1"})
    assert item.timestamp_us == (flux.BASE_MS + 7) * 1000
    assert source.findings.count == 0


@pytest.mark.parametrize("first_room_bytes", [10, 1024 * 1024])
def test_a_zstd_frame_that_does_not_tell_its_length(
    source_path: Path, first_room_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxmq_batches, "_FIRST_ROOM_BYTES", first_room_bytes)
    raw = b"".join(flux.record(rec, index) for index, rec in enumerate(flux.values(0, 50)))
    compressor = cramjam.zstd.Compressor()
    compressor.compress(raw)
    body = bytes(compressor.finish())
    assert body[4] >> 6 == 0, "this frame was to have no length"
    assert not body[4] & 0x20
    items, source = read(
        source_path, flux.batch(0, flux.values(0, 50), codec=flux.ZSTD, body=body, is_compressed=True)
    )
    assert offsets(items) == list(range(50))
    assert source.findings.count == 0


def test_large_values_cross_the_window(source_path: Path) -> None:
    big = bytes(range(256)) * 6000
    batches = [flux.batch(index, [Rec(big + bytes([index]))]) for index in range(4)]
    items, source = read(source_path, *batches, flux.batch(4, flux.values(4, 2)))
    assert [item.value for item in items[:4]] == [big + bytes([index]) for index in range(4)]
    assert offsets(items) == list(range(6))
    assert source.findings.count == 0


def brackets(batch: bytes) -> tuple[bytes, bytes, bytes]:
    """A batch with whole ones on both sides."""
    return flux.batch(0, flux.values(0, 2)), batch, flux.batch(4, flux.values(4, 2))


GOOD = flux.record(Rec(b"whole"), 0)


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (flux.batch(2, [Rec()] * 2, codec=3, is_compressed=True), "the codec 3, which is not known"),
        (flux.batch(2, [Rec()] * 2, codec=flux.S2, body=b"\xff", is_compressed=True), "no S2 block"),
        (flux.batch(2, [Rec()] * 2, codec=flux.ZSTD, body=b"", is_compressed=True), "no zstd frame"),
        (flux.batch(2, [Rec()] * 2, codec=flux.ZSTD, body=b"\x28\xb5\x2f\xfd\x20\x05xx"), "no zstd frame"),
        (flux.batch(2, [], count=2), "record 0 of 2 is cut off"),
        (flux.batch(2, [], count=2, body=b"\x80" * 11), "record 0 of 2 is cut off"),
        (flux.batch(2, [], count=2, body=b"\0\0" + flux.varint(2**40)), "record 0 of 2 is cut off"),
        (flux.batch(2, [], count=2, body=b"\0\0\1\1" + uvarint(2**60)), "record 0 of 2 is cut off"),
        (flux.batch(2, [], count=2, body=b"\0\0\1\1\2\0\0\0"), "record 0 of 2 is cut off"),
    ],
)
def test_what_cannot_be_read_is_told_and_the_rest_goes_on(
    source_path: Path, batch: bytes, problem: str
) -> None:
    first, batch, last = brackets(batch)
    items, source = read(source_path, first, batch, last)
    assert offsets(items) == [0, 1, 4, 5]
    finding = only(source.findings)
    assert problem in finding.problem
    assert finding.problem.endswith("; offsets 2 to 3 are lost")
    assert (finding.position, finding.length, finding.is_damage) == (len(first), len(batch), True)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (GOOD, "record 1 of 2 is cut off; offset 3 is lost"),
        (GOOD + flux.record(Rec(delta=7), 1), "offset 9, which is out of order; offset 3 is lost"),
        (GOOD + flux.record(Rec(delta=0), 1), "offset 2, which is out of order; offset 3 is lost"),
    ],
)
def test_records_before_the_one_that_makes_no_sense_are_taken(
    source_path: Path, body: bytes, problem: str
) -> None:
    items, source = read(source_path, *brackets(flux.batch(2, [], count=2, body=body)))
    assert offsets(items) == [0, 1, 2, 4, 5]
    assert only(source.findings).problem.endswith(problem)


def test_bytes_behind_the_records_are_told_and_the_records_taken(source_path: Path) -> None:
    body = GOOD + flux.record(Rec(), 1) + b"more"
    items, source = read(source_path, *brackets(flux.batch(2, [], count=2, body=body)))
    assert offsets(items) == list(range(6))
    assert only(source.findings).problem.endswith("behind the 2 records there are 4 bytes more")


def test_a_later_version_is_refused_by_its_number(source_path: Path) -> None:
    items, source = read(source_path, *brackets(flux.batch(2, flux.values(2, 2), version=2)))
    assert offsets(items) == [0, 1, 4, 5]
    assert only(source.findings).problem == (
        "a batch has the version 2, known is 1; offsets 2 to 3 are lost"
    )


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (flux.S2, block(2**31, literal(b"x"), far(1, 64), repeat(2**24))),
        (flux.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + pack("<Q", 2**40) + b"\1\0\0"),
    ],
)
def test_a_bomb_is_refused_by_what_it_says_of_itself(source_path: Path, codec: int, body: bytes) -> None:
    batch = flux.batch(2, [], count=2, codec=codec, body=body, is_compressed=True)
    items, source = read(source_path, *brackets(batch))
    assert offsets(items) == [0, 1, 4, 5]
    assert "the limit is 268435456" in only(source.findings).problem


def test_a_bomb_that_does_not_tell_its_length_has_no_more_room_than_is_allowed(
    source_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluxmq_batches, "_BATCH_BYTES_MAX", 10_000)
    compressor = cramjam.zstd.Compressor()
    compressor.compress(bytes(10_001))
    batch = flux.batch(2, [], count=2, codec=flux.ZSTD, body=bytes(compressor.finish()), is_compressed=True)
    _, source = read(source_path, *brackets(batch))
    assert "no zstd frame of at most 10000 bytes" in only(source.findings).problem


def test_what_the_broker_writes_among_headers_is_understood(source_path: Path) -> None:
    own = {"_topic": b"$queue/q/eu", "_id": b"m-1", "_state": b"queued", "_expires_at": b"1767830400000"}
    records = [
        Rec(b"a", b"", {**own, "content-type": b"text/plain"}),
        Rec(b"b", b"", {"_topic": b"t", "_id": b""}),
        Rec(b"c", b"", {"_topic": b"t", "_id": b"m-3", "_state": b"acked"}),
        # Not of the broker: it writes a topic and an id, always.
        Rec(b"d", None, {"_id": b"mine", "_state": b"mine", "_expires_at": b"1"}),
    ]
    items, source = read(source_path, flux.batch(0, records))
    assert [item.id for item in items] == ["m-1", "1", "m-3", "3"]
    assert [item.expires_at_us for item in items] == [1_767_830_400_000_000, None, None, None]
    assert [item.is_consumed for item in items] == [False, False, True, False]
    assert items[0].headers == {"_topic": b"$queue/q/eu", "content-type": b"text/plain"}
    assert items[3].headers == records[3].headers
    assert source.findings.count == 0


@pytest.mark.parametrize("text", [b"", b"soon", b"1.5", b"9" * 20])
def test_an_expiry_that_is_no_number_stays_a_header_and_is_told_once(
    source_path: Path, text: bytes
) -> None:
    rec = Rec(b"a", b"", {"_topic": b"t", "_id": b"1", "_expires_at": text})
    items, source = read(source_path, flux.batch(0, [rec, rec]))
    assert [item.expires_at_us for item in items] == [None, None]
    assert items[0].headers == {"_topic": b"t", "_expires_at": text}
    assert problems(source.findings, is_damage=False) == [
        "a header _expires_at is no number of milliseconds"
    ]


def test_a_name_of_a_header_that_is_not_utf8_is_written_out(source_path: Path) -> None:
    [item], source = read(source_path, flux.batch(0, [Rec(b"a", None, {b"\xffx": b"1", "ok": b"2"})]))
    assert item.headers == {"\\xffx": b"1", "ok": b"2"}
    assert only(source.findings).is_damage is False


@pytest.mark.parametrize("base_ms", [2**62, -(2**62)])
def test_times_that_nobody_could_mean_are_brought_into_range(source_path: Path, base_ms: int) -> None:
    [item], source = read(source_path, flux.batch(0, [Rec()], base_ms=base_ms))
    assert abs(item.timestamp_us) == 2**62
    assert (item.timestamp_us > 0) == (base_ms > 0)
    assert only(source.findings).is_damage is False


def test_a_directory_of_something_else_is_refused_with_what_is_missing(source_path: Path) -> None:
    (source_path / "readme.txt").write_text("nothing")
    with pytest.raises(InvalidRequest, match="no queues/, no segments/ and no files such as"):
        open_source(source_path, DISK)
    with pytest.raises(InvalidRequest, match="no directory of FluxMQ"):
        open_source(source_path / "missing", DISK)
