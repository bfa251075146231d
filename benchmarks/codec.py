"""Compression: what a codec costs on either side of a frame, and what it saves."""

from collections.abc import Callable, Iterable
from functools import partial

import cramjam

from benchmarks.measure import alternate, counted
from benchmarks.row import Row, row_of
from benchmarks.workload import Bench, json_messages
from quivermq.frame import Codec, Frame, encode

_BATCH = 1000

# The same calls and levels as quivermq.frame.codec makes; without a codec, a copy is the least.
_COMPRESS: dict[Codec, Callable[[bytes], object]] = {
    Codec.NONE: bytearray,
    Codec.ZSTD: partial(cramjam.zstd.compress, level=1),
    Codec.LZ4: partial(cramjam.lz4.compress_block, store_size=False),
    Codec.GZIP: partial(cramjam.gzip.compress, level=6),
}
_DECOMPRESS: dict[Codec, Callable[[bytes, bytearray], object]] = {
    Codec.NONE: lambda stored, raw: raw.__setitem__(slice(None), stored),
    Codec.ZSTD: cramjam.zstd.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_block_into,
    Codec.GZIP: cramjam.gzip.decompress_into,
}


def codec(bench: Bench) -> Iterable[Row]:
    """Raw bytes a second through `encode`, and through `Frame.parse` and `values`."""
    values = json_messages(_BATCH)
    raw = bytes(encode(values, timestamp=0).raw)
    for each in Codec:
        frame = encode(values, timestamp=0, codec=each)
        yield from _rows(bench, each, values, raw, frame)


def _rows(bench: Bench, codec: Codec, values: list[bytes], raw: bytes, frame: Frame) -> Iterable[Row]:
    whole, stored = bytes(frame), bytes(frame.stored)
    works: dict[str, Callable[[], object]] = {
        "encode": lambda: encode(values, timestamp=0, codec=codec),
        "decode": lambda: Frame.parse(whole).values(),
        "compress alone": lambda: _COMPRESS[codec](raw),
        "decompress alone": lambda: _DECOMPRESS[codec](stored, bytearray(len(raw))),
    }
    repeats = bench.scale.codec_batches
    contenders = {
        name: counted(partial(_repeat, work, repeats), repeats * len(raw)) for name, work in works.items()
    }
    measured = alternate(contenders, bench.scale.rounds)
    for name, limit in (("encode", "compress alone"), ("decode", "decompress alone")):
        shrunk = f"{codec.name.lower()}, {len(raw) / len(stored):.2f} : 1"
        yield row_of(f"{name} {shrunk}", measured[name], {limit: measured[limit]}, unit="bytes/s")


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()
