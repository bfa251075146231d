"""Compression of a frame's body, with the length known and bounded before any memory is taken."""

from collections.abc import Callable
from typing import NamedTuple

import cramjam

from quivermq.disk import Buffer
from quivermq.errors import InvalidFrame, InvalidRequest
from quivermq.frame.header import Codec

# Kept only when it saves at least this share: below that, every reader would pay for nothing.
SAVING_PERCENT_MIN = 5

_ZSTD_LEVEL = 1
_GZIP_LEVEL = 6

_compress: dict[Codec, Callable[[Buffer, int | None], bytes]] = {
    Codec.ZSTD: lambda raw, level: bytes(cramjam.zstd.compress(raw, level=level or _ZSTD_LEVEL)),
    Codec.LZ4: lambda raw, _: bytes(cramjam.lz4.compress_block(raw, store_size=False)),
    Codec.GZIP: lambda raw, level: bytes(cramjam.gzip.compress(raw, level=level or _GZIP_LEVEL)),
}
_decompress_into: dict[Codec, Callable[[Buffer, bytearray], int]] = {
    Codec.ZSTD: cramjam.zstd.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_block_into,
    Codec.GZIP: cramjam.gzip.decompress_into,
}


class Compression(NamedTuple):
    """A codec, how hard it tries, and from which size of a body on."""

    codec: Codec
    level: int | None = None
    bytes_min: int = 0


AnyCodec = Codec | Compression


def compression_of(name: str, level: int | None = None, bytes_min: int = 0) -> AnyCodec:
    """What the settings of a topic say about compression."""
    codec = codec_named(name)
    is_plain = codec is Codec.NONE or (level is None and not bytes_min)
    return codec if is_plain else Compression(codec, level, bytes_min)


def codec_named(name: str) -> Codec:
    """The codec that the settings call `name`."""
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise InvalidRequest(f"codec {name!r} is not one of {known}") from None


def compress(
    raw: bytes, codec: AnyCodec, saving_percent_min: int = SAVING_PERCENT_MIN
) -> tuple[bytes, Codec]:
    """The body as it should be stored, and the codec that was really used."""
    if codec is Codec.NONE:
        return raw, Codec.NONE
    level = None
    if isinstance(codec, Compression):
        if len(raw) < codec.bytes_min:
            return raw, Codec.NONE
        level = codec.level
        codec = codec.codec
    stored = _compress[codec](raw, level)
    if len(stored) * 100 > len(raw) * (100 - saving_percent_min):
        return raw, Codec.NONE
    return stored, codec


def decompress(stored: Buffer, codec: Codec, raw_bytes: int) -> memoryview:
    """The raw body, which must come out at exactly `raw_bytes`.

    The caller has checked `raw_bytes` against its limit. Raises InvalidFrame.
    """
    raw = bytearray(raw_bytes)
    try:
        length = _decompress_into[codec](stored, raw)
    except cramjam.DecompressionError as error:
        raise InvalidFrame(
            f"the {codec.name.lower()} body does not decompress to {raw_bytes} bytes: {error}",
            position=0,
        ) from None
    if length != raw_bytes:
        raise InvalidFrame(
            f"the {codec.name.lower()} body has {length} bytes, the header says {raw_bytes}",
            position=0,
        )
    # Not `bytes(raw)`: a copy would take the memory twice, and the limit was granted once.
    return memoryview(raw).toreadonly()
