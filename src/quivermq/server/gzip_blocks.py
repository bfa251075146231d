"""A gzip stream out of parts that many streams share: each part is compressed once, whoever gets it.

A part ends with a full flush, so it refers to nothing before it and fits behind any other. That costs a
little of the ratio, and saves the processor the work for each listener.
"""

import zlib

from quivermq.server.http import Stream

# Nothing of a name or a time, and no hint of the system.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END = b"\x03\x00"
_RAW_WINDOW = -15
_LEVEL = 6


def compressed(data: bytes) -> bytes:
    """A part, as it can stand anywhere in a stream."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_WINDOW)
    return squeeze.compress(data) + squeeze.flush(zlib.Z_FULL_FLUSH)


def accepts_gzip(accepted: str) -> bool:
    """Whether a header Accept-Encoding allows it by name."""
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class GzipStream:
    """A stream of gzip. Its end says how much there was, so nobody takes a cut for an end."""

    __slots__ = ("_crc", "_is_begun", "_size", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._crc = 0
        self._size = 0
        self._is_begun = False

    def write(self, data: bytes, block: bytes) -> bool:
        """Send a part, which is there as it is and as `compressed` made it. False when it was dropped."""
        if not self._stream.write(block if self._is_begun else _HEADER + block):
            return False
        self._is_begun = True
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        return True

    def close(self) -> None:
        """End the stream as a whole one."""
        if self._is_begun and not (self._stream.is_paused or self._stream.is_closed):
            size = self._size & 0xFFFFFFFF
            self._stream.write(_END + self._crc.to_bytes(4, "little") + size.to_bytes(4, "little"))
        self._stream.close()
