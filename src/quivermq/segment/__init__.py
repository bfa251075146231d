"""One log file and its index.

`SegmentWriter` appends, `Segment` reads, `recover` makes a segment whole after a crash, `FrameScan`
decides what whole means.
"""

from quivermq.segment.index import (
    TIMESTAMP_NONE,
    SparseIndex,
    base_offset_of,
    index_path,
    load_index,
    log_path,
    write_index,
)
from quivermq.segment.recovery import Tail, copy_range, inspect_tail, recover, set_aside
from quivermq.segment.scan import Damage, Found
from quivermq.segment.segment import Segment
from quivermq.segment.writer import SegmentWriter

__all__ = [
    "TIMESTAMP_NONE",
    "Damage",
    "Found",
    "Segment",
    "SegmentWriter",
    "SparseIndex",
    "Tail",
    "base_offset_of",
    "copy_range",
    "index_path",
    "inspect_tail",
    "load_index",
    "log_path",
    "recover",
    "set_aside",
    "write_index",
]
