"""Compression: what a codec costs on either side of a frame, and what it saves."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import cramjam

from benchmarks.measure import Prepare, counted
from benchmarks.messages import Columns, columns_of, json_messages
from benchmarks.race import Race, Subject, turns
from benchmarks.shape import TIME_US, Shape
from benchmarks.workload import Bench
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


def codec(bench: Bench) -> Iterable[Race]:
    """Raw bytes a second through `encode`, and through `Frame.parse` and `values`."""
    for each in Codec:
        run = turns(bench.scale.rounds)
        for name, contenders in (("encode", _encoding), ("decode", _decoding)):
            subject = Subject(f"{name} {each.name.lower()}", name)
            yield Race(partial(contenders, bench, each), [subject], run, unit="bytes/s")


def _encoding(bench: Bench, codec: Codec, shape: Shape) -> dict[str, Prepare]:
    values, columns = _columns(shape)
    frame = encode(values, codec=codec, **columns)
    raw = bytes(encode(values, **columns).raw)
    works: dict[str, Callable[[], object]] = {
        "encode": lambda: encode(values, codec=codec, **columns),
        f"compress alone, {len(raw) / len(frame.stored):.2f} : 1": lambda: _COMPRESS[codec](raw),
    }
    return _counted(bench, works, len(raw))


def _decoding(bench: Bench, codec: Codec, shape: Shape) -> dict[str, Prepare]:
    values, columns = _columns(shape)
    frame = encode(values, codec=codec, **columns)
    whole, stored, size = bytes(frame), bytes(frame.stored), len(frame.raw)
    works: dict[str, Callable[[], object]] = {
        "decode": lambda: Frame.parse(whole).values(),
        "decompress alone": lambda: _DECOMPRESS[codec](stored, bytearray(size)),
    }
    return _counted(bench, works, size)


def _columns(shape: Shape) -> Columns:
    values, others = columns_of(json_messages(_BATCH, shape))
    return values, {"timestamp": TIME_US, **others}


def _counted(bench: Bench, works: Mapping[str, Callable[[], object]], size: int) -> dict[str, Prepare]:
    repeats = bench.scale.codec_batches
    return {name: counted(partial(_repeat, work, repeats), repeats * size) for name, work in works.items()}


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()
