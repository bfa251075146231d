"""Compression: kept only when it pays, undone only into the memory that the header was granted."""

import gzip
import resource
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
from vectors import forged

import quivermq.frame.codec as codec_module
from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, InvalidRequest
from quivermq.frame import Codec, Frame, codec_named, compression_of, encode
from quivermq.frame.codec import compress, decompress

RAW = b"a message like many others, and another message like many others. " * 20
CODECS = [Codec.ZSTD, Codec.LZ4, Codec.GZIP]


def stored_with(codec: Codec, raw: bytes = RAW) -> bytes:
    stored, used = compress(raw, codec)
    assert used is codec
    return stored


def pretend(monkeypatch: pytest.MonkeyPatch, codec: Codec, compressor: Callable[[Buffer], bytes]) -> None:
    monkeypatch.setitem(codec_module._compress, codec, lambda raw, _: compressor(raw))


def bomb_of_512_mib(codec: Codec) -> bytes:
    """Valid and small, and made without the memory that it would take."""
    if codec is Codec.GZIP:
        return gzip.compress(bytes(2**20)) * 512
    if codec is Codec.LZ4:
        one_literal_and_a_long_match = b"\x1f\0\x01\0" + b"\xff" * (2**29 // 255) + b"\0"
        return one_literal_and_a_long_match + b"\x50" + bytes(5)
    block_of_128_kib = (2**17 << 3 | 0b010).to_bytes(3, "little") + b"\0"
    last_block = (1 << 3 | 0b011).to_bytes(3, "little") + b"\0"
    return bytes.fromhex("28b52ffd0038") + block_of_128_kib * 4096 + last_block


class TestCompress:
    @pytest.mark.parametrize("codec", CODECS)
    def test_what_pays_is_kept(self, codec: Codec) -> None:
        stored = stored_with(codec)
        assert len(stored) < len(RAW) / 2
        assert decompress(stored, codec, len(RAW)) == RAW

    def test_none_hands_on_the_same_object(self) -> None:
        stored, used = compress(RAW, Codec.NONE)
        assert stored is RAW
        assert used is Codec.NONE

    @pytest.mark.parametrize("codec", CODECS)
    def test_what_saves_nothing_is_not_kept(self, codec: Codec) -> None:
        noise = bytes((i * i * 31 + i * 7 >> 3) & 0xFF for i in range(64))
        stored, used = compress(noise, codec)
        assert stored is noise
        assert used is Codec.NONE

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize(
        ("raw_bytes", "stored_bytes", "kept"),
        [
            (100, 95, True),
            (100, 96, False),
            (1000, 950, True),
            (1000, 951, False),
            (8, 7, True),
            (8, 8, False),
        ],
    )
    def test_five_percent_is_the_least(
        self, monkeypatch: pytest.MonkeyPatch, codec: Codec, raw_bytes: int, stored_bytes: int, kept: bool
    ) -> None:
        pretend(monkeypatch, codec, lambda _: bytes(stored_bytes))
        stored, used = compress(bytes(raw_bytes), codec)
        assert (len(stored), used) == ((stored_bytes, codec) if kept else (raw_bytes, Codec.NONE))

    def test_each_codec_is_the_one_of_the_page(self) -> None:
        assert gzip.decompress(stored_with(Codec.GZIP)) == RAW
        assert stored_with(Codec.GZIP)[4:8] == bytes(4), "no time of making, so that it can be repeated"
        assert stored_with(Codec.ZSTD)[:4] == bytes.fromhex("28b52ffd")
        lz4 = stored_with(Codec.LZ4)
        assert bytes(cramjam.lz4.decompress_block(lz4, output_len=len(RAW))) == RAW
        assert lz4[:4] != len(RAW).to_bytes(4, "little"), "a block has no length in front"


@pytest.mark.parametrize("codec", CODECS)
class TestDecompress:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_it_takes_every_buffer(self, codec: Codec, kind: Callable[[bytes], Buffer]) -> None:
        assert decompress(kind(stored_with(codec)), codec, len(RAW)) == RAW

    @pytest.mark.parametrize("difference", [-len(RAW), -8, -1, 1, 8, 100_000])
    def test_the_raw_length_must_be_exact(self, codec: Codec, difference: int) -> None:
        with pytest.raises(InvalidFrame, match=codec.name.lower()) as caught:
            decompress(stored_with(codec), codec, len(RAW) + difference)
        assert caught.value.position == 0

    def test_every_truncation_is_noticed(self, codec: Codec) -> None:
        stored = stored_with(codec)
        for length in range(len(stored)):
            with pytest.raises(InvalidFrame):
                decompress(stored[:length], codec, len(RAW))

    @pytest.mark.parametrize("rest", [b"\0", b"rest", bytes(100), b"\xff" * 9])
    def test_what_follows_is_noticed(self, codec: Codec, rest: bytes) -> None:
        with pytest.raises(InvalidFrame):
            decompress(stored_with(codec) + rest, codec, len(RAW))

    @pytest.mark.parametrize(
        "garbage", [b"", b"\0", bytes(64), b"\xff" * 64, bytes(range(256)), RAW], ids=len
    )
    def test_garbage_is_refused(self, codec: Codec, garbage: bytes) -> None:
        with pytest.raises(InvalidFrame):
            decompress(garbage, codec, len(RAW))

    def test_another_codec_is_refused(self, codec: Codec) -> None:
        for other in set(CODECS) - {codec}:
            with pytest.raises(InvalidFrame):
                decompress(stored_with(other), codec, len(RAW))


class TestSeveralBehindOneAnother:
    """The format lets a reader accept them, and says that ours does."""

    def test_zstd_frames_and_gzip_members(self) -> None:
        first, second = RAW[:100], RAW[100:]
        members = gzip.compress(first) + gzip.compress(second)
        assert decompress(members, Codec.GZIP, len(RAW)) == RAW
        frames = bytes(cramjam.zstd.compress(first)) + bytes(cramjam.zstd.compress(second))
        assert decompress(frames, Codec.ZSTD, len(RAW)) == RAW


class TestLimits:
    @pytest.mark.parametrize("codec", CODECS)
    def test_the_raw_length_is_checked_before_anything_is_done(
        self, codec: Codec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frame = encode([RAW], timestamp=1, codec=codec)
        raw_bytes, data = frame.header.raw_bytes, bytes(frame)
        assert Frame.parse(data, raw_bytes_max=raw_bytes).values() == [RAW]

        def refuse(*_: object) -> bytes:
            raise AssertionError("it was decompressed")

        monkeypatch.setattr("quivermq.frame.frame.decompress", refuse)
        with pytest.raises(InvalidFrame, match=f"has {raw_bytes} bytes when decompressed, the limit is"):
            Frame.parse(data, raw_bytes_max=raw_bytes - 1).validate()

    def test_the_limit_holds_without_a_codec_too(self) -> None:
        data = bytes(encode([RAW], timestamp=1))
        with pytest.raises(InvalidFrame, match="the limit is 100"):
            Frame.parse(data, raw_bytes_max=100).validate()

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_header_that_promises_gigabytes_takes_no_memory(self, codec: Codec) -> None:
        data = forged(bytes(16), stored_with(codec), codec=codec, raw_bytes=2**32 - 8)
        tracemalloc.start()
        try:
            with pytest.raises(InvalidFrame, match="the limit is"):
                Frame.parse(data).validate()
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("codec", CODECS)
    def test_a_bomb_takes_no_more_than_the_header_says(self, codec: Codec) -> None:
        bomb = bomb_of_512_mib(codec)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for raw_bytes in (1000, 2**20):
            with pytest.raises(InvalidFrame):
                decompress(bomb, codec, raw_bytes)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024, "KiB"

    def test_a_zstd_window_over_the_limit_is_refused(self) -> None:
        eight_zeros = bytes([0x43, 0, 0, 0])
        magic = bytes.fromhex("28b52ffd00")
        largest = magic + bytes([17 << 3]) + eight_zeros
        assert decompress(largest, Codec.ZSTD, 8) == bytes(8)
        with pytest.raises(InvalidFrame, match="too much memory"):
            decompress(magic + bytes([18 << 3]) + eight_zeros, Codec.ZSTD, 8)

    def test_a_gzip_checksum_counts(self) -> None:
        stored = bytearray(gzip.compress(RAW))
        assert stored[-8:-4] == zlib.crc32(RAW).to_bytes(4, "little")
        stored[-8] ^= 1
        with pytest.raises(InvalidFrame, match="checksum"):
            decompress(stored, Codec.GZIP, len(RAW))


def test_a_codec_has_a_name() -> None:
    assert [codec_named(name) for name in ("none", "zstd", "lz4", "gzip")] == list(Codec)
    with pytest.raises(InvalidRequest, match="'snappy' is not one of none, zstd, lz4, gzip"):
        codec_named("snappy")


def test_a_level_makes_a_body_smaller() -> None:
    raw = b" ".join(b"%d" % (number * 7919 % 10_007) for number in range(20_000))
    sizes = [len(compress(raw, compression_of("zstd", level))[0]) for level in (None, 1, 19)]
    assert sizes[0] == sizes[1] > sizes[2]
    stored, used = compress(raw, compression_of("gzip", 9))
    assert (used, bytes(decompress(stored, used, len(raw)))) == (Codec.GZIP, raw)


def test_a_small_body_stays_as_it_is() -> None:
    codec = compression_of("zstd", None, 1000)
    assert compress(b"a" * 999, codec) == (b"a" * 999, Codec.NONE)
    assert compress(b"a" * 1000, codec)[1] is Codec.ZSTD


def test_without_more_to_say_it_is_the_codec_alone() -> None:
    assert compression_of("lz4") is Codec.LZ4
    assert compression_of("none", 5, 100) is Codec.NONE
