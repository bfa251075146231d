"""Whole frames as one Arrow batch: what no message of them has, or all share, is made once for all."""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import attrgetter, or_

import numpy as np
import pyarrow as pa

from quivermq.frame import Column, Frame, Header
from quivermq.frame.arrow import SCHEMA as FRAME_SCHEMA
from quivermq.frame.arrow import TIME, absent, arrow_batch

# What a frame tells of its messages, and when it came in, which is the same for all of them.
SCHEMA = FRAME_SCHEMA.append(pa.field("append_time", TIME, nullable=False))

_STORED_AS = {
    "value": Column.VALUE,
    "key": Column.KEY,
    "headers": Column.HEADERS,
    "timestamp": Column.TIMESTAMP,
    "expires_at": Column.EXPIRES_AT,
    "dedup_id": Column.DEDUP_ID,
    "origin_id": Column.ORIGIN_ID,
}


# Times that a frame's header tells for all of its messages.
_OF_HEADERS = {"timestamp": "timestamp_min", "append_time": "append_time"}


def joined(frames: Sequence[Frame], names: Sequence[str]) -> pa.RecordBatch:
    """The messages of frames that follow each other, none of which is a control frame.

    `names` are columns of a frame's schema. Raises InvalidFrame.
    """
    headers = [frame.header for frame in frames]
    present = reduce(or_, (header.columns for header in headers))
    stored = tuple(name for name in names if present & _STORED_AS.get(name, 0))
    arrays: dict[str, pa.Array] = {}
    if stored:
        # A frame that lacks what another one has makes up for it; what nobody has is not even looked for.
        whole = pa.concat_batches([arrow_batch(frame, stored) for frame in frames])
        arrays = dict(zip(stored, whole.columns, strict=True))
    columns = [arrays[name] if name in arrays else _shared(name, headers) for name in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([SCHEMA.field(name) for name in names]))


def _shared(name: str, headers: Sequence[Header]) -> pa.Array:
    """A column that is not stored, for the messages of all these frames."""
    if name == "offset":
        return _offsets(headers)
    if name in _OF_HEADERS:
        taken = attrgetter(_OF_HEADERS[name])
        stamps = np.fromiter(map(taken, headers), np.int64, len(headers))
        counts = np.fromiter((header.message_count for header in headers), np.int64, len(headers))
        return pa.array(np.repeat(stamps, counts)).view(TIME)
    return absent(name, sum(header.message_count for header in headers))


def _offsets(headers: Sequence[Header]) -> pa.Array:
    if all(header.end_offset == after.base_offset for header, after in pairwise(headers)):
        return pa.arange(headers[0].base_offset, headers[-1].end_offset)
    return pa.concat_arrays([pa.arange(header.base_offset, header.end_offset) for header in headers])
