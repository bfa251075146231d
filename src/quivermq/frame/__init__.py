"""Messages to frame bytes and back. Pure: no file, no clock, no thread.

`encode` makes a frame, `Frame.parse` takes one out of bytes, `arrow_batch` shows one to Arrow.
"""

from typing import TYPE_CHECKING, Any

from quivermq.frame.codec import AnyCodec, Compression, codec_named, compression_of
from quivermq.frame.columns import CheckedHeaders, Headers, JoinedBytes, JoinedHeaders, Times, joined_bytes
from quivermq.frame.compaction import (
    REMOVED,
    each_left,
    has_removed,
    is_bound,
    left_of,
    records_at,
    removed_offsets,
    stamp_of,
)
from quivermq.frame.encode import (
    ANONYMOUS,
    EntryFields,
    LoneFrame,
    Producer,
    encode,
    encode_control,
    encode_records,
    first_messages,
    lone_frame,
    part_of,
    with_expiry,
)
from quivermq.frame.frame import FRAME_BYTES_MAX, RAW_BYTES_MAX, Frame
from quivermq.frame.header import HEADER_BYTES, MAGIC, OFFSET_MAX, Codec, Column, Flag, Header, parse_header
from quivermq.frame.layout import Layout
from quivermq.frame.matching import Wanted
from quivermq.frame.parts import CHUNK
from quivermq.frame.run import Found, usual_run
from quivermq.model.messages import Record

if TYPE_CHECKING:
    from quivermq.frame.arrow import arrow_batch

__all__ = [
    "ANONYMOUS",
    "CHUNK",
    "FRAME_BYTES_MAX",
    "HEADER_BYTES",
    "MAGIC",
    "OFFSET_MAX",
    "RAW_BYTES_MAX",
    "REMOVED",
    "AnyCodec",
    "CheckedHeaders",
    "Codec",
    "Column",
    "Compression",
    "EntryFields",
    "Flag",
    "Found",
    "Frame",
    "Header",
    "Headers",
    "JoinedBytes",
    "JoinedHeaders",
    "Layout",
    "LoneFrame",
    "Producer",
    "Record",
    "Times",
    "Wanted",
    "arrow_batch",
    "codec_named",
    "compression_of",
    "each_left",
    "encode",
    "encode_control",
    "encode_records",
    "first_messages",
    "has_removed",
    "is_bound",
    "joined_bytes",
    "left_of",
    "lone_frame",
    "parse_header",
    "part_of",
    "records_at",
    "removed_offsets",
    "stamp_of",
    "usual_run",
    "with_expiry",
]


def __getattr__(name: str) -> Any:
    # pyarrow is an extra: importing the embedded queue must neither need it nor wait for it.
    if name == "arrow_batch":
        try:
            from quivermq.frame.arrow import arrow_batch
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            message = "arrow_batch needs pyarrow: pip install 'quivermq[spark]'"
            raise ModuleNotFoundError(message, name="pyarrow") from None
        return arrow_batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
