"""Arrow over mapped segments, and which part of the time the checksums take.

A scan is `frames(mapped=True)`, which checks every byte against its CRC, and `arrow_batch`, which hands
the same memory to Arrow. Both parts are measured alone as well.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from benchmarks.measure import alternate, counted
from benchmarks.row import Row, row_of
from benchmarks.workload import LOG, MESSAGE_BYTES, Bench, check, copy, filled_log, log_files, mapped
from quivermq.frame import Frame, arrow_batch
from quivermq.log import DataDirectory, Log


def arrow(bench: Bench) -> Iterable[Row]:
    """Bytes of log files a second, from batches of 100 and of 1000."""
    messages = bench.scale.arrow_bytes // MESSAGE_BYTES
    for batch in (100, 1000):
        with filled_log(bench, messages=messages, batch=batch) as path, DataDirectory(path) as data:
            yield from _rows(bench, path, data.log(LOG), batch)


def _rows(bench: Bench, path: Path, log: Log, batch: int) -> Iterable[Row]:
    subjects: dict[str, Callable[[], None]] = {
        "scan + value bytes read again": partial(_scan, log, _read_offsets_and_data),
        "scan": partial(_scan, log, _read_offsets),
        "CRC part of the scan": partial(_walk, log),
        "Arrow part of the scan": partial(_convert, list(log.frames(mapped=True))),
    }
    with mapped(log_files(path)) as memories:
        limits: dict[str, Callable[[], None]] = {
            "crc32c of the mapped files": partial(check, memories),
            "memcpy of the mapped files": partial(copy, memories),
        }
        contenders = {name: counted(work, log.size_bytes) for name, work in (subjects | limits).items()}
        measured = alternate(contenders, bench.scale.arrow_rounds)
    beside = {name: measured[name] for name in limits}
    for name in subjects:
        yield row_of(f"{name}, {batch}", measured[name], beside, unit="bytes/s")


def _scan(log: Log, touch: Callable[[pa.Array], None]) -> None:
    """Everything: map, check, convert all columns, touch the values."""
    for frame in log.frames(mapped=True):
        touch(arrow_batch(frame).column("value"))


def _walk(log: Log) -> None:
    """Map and check alone: the CRC reads every byte of the files, headers and padding too."""
    for _ in log.frames(mapped=True):
        pass


def _convert(frames: Sequence[Frame]) -> None:
    """Convert and touch frames that were checked before: a scan as it would be without checksums."""
    for frame in frames:
        # A new object, because a frame finds its columns only once.
        _read_offsets(arrow_batch(Frame(frame.header, frame.stored)).column("value"))


def _read_offsets(values: pa.Array) -> None:
    """Touches every value's offsets, and no byte of its data."""
    pc.sum(pc.binary_length(values))


def _read_offsets_and_data(values: pa.Array) -> None:
    """Touches every value's offsets and every byte of its data."""
    _read_offsets(values)
    crc32c(values.buffers()[2])
