"""One log file and its index.

`SegmentWriter` appends, `Segment` reads, `recover` makes a segment whole after a crash, `Scan` decides
what whole means.
"""

from quivermq.segment.index import TIMESTAMP_NONE, Index
from quivermq.segment.names import base_offset_of, index_path, log_path
from quivermq.segment.quarantine import copy_range, set_aside
from quivermq.segment.recovery import Tail, inspect_tail, recover, write_index
from quivermq.segment.scan import Damage, Found
from quivermq.segment.segment import Segment, load_index
from quivermq.segment.writer import SegmentWriter

__all__ = [
    "TIMESTAMP_NONE",
    "Damage",
    "Found",
    "Index",
    "Segment",
    "SegmentWriter",
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
