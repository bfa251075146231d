"""Arrow over mapped segments, and which part of the time the checksums take.

A scan is `frames(mapped=True)`, which checks every byte against its CRC, and `arrow_batch`, which hands
the same memory to Arrow. Both parts are measured alone as well.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from benchmarks.measure import Prepare, counted
from benchmarks.race import Race, Subject, turns
from benchmarks.shape import MESSAGE_BYTES, Shape
from benchmarks.workload import Bench, check, copy, filled_logs, log_files, mapped
from quivermq import Log
from quivermq.frame import Frame, arrow_batch

_SCAN_AND_READ, _SCAN = "scan + value bytes read again", "scan"
_CRC, _ARROW = "CRC part of the scan", "Arrow part of the scan"


def arrow(bench: Bench) -> Iterable[Race]:
    """Bytes of log files a second, from batches of 100 and of 1000."""
    messages = bench.scale.arrow_bytes // MESSAGE_BYTES
    for batch in (100, 1000):
        subjects = [Subject(f"{name}, {batch}", name) for name in (_SCAN_AND_READ, _SCAN, _CRC, _ARROW)]
        with filled_logs(bench, messages=messages, batch=batch) as logs, ExitStack() as stack:
            run = turns(bench.scale.arrow_rounds)
            yield Race(partial(_contenders, stack, logs), subjects, run, unit="bytes/s")


def _contenders(
    stack: ExitStack, logs: Mapping[Shape, tuple[Path, Log]], shape: Shape
) -> dict[str, Prepare]:
    path, log = logs[shape]
    memories = stack.enter_context(mapped(log_files(path)))
    works: dict[str, Callable[[], None]] = {
        _SCAN_AND_READ: partial(_scan, log, _read_offsets_and_data),
        _SCAN: partial(_scan, log, _read_offsets),
        _CRC: partial(_walk, log),
        _ARROW: partial(_convert, list(log.frames(mapped=True))),
        "crc32c of the mapped files": partial(check, memories),
        "memcpy of the mapped files": partial(copy, memories),
    }
    return {name: counted(work, log.size_bytes) for name, work in works.items()}


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
