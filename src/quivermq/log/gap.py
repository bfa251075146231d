"""The frame that stands where damaged frames were: it takes their offsets and says where they went.

So a repaired log has every offset it ever had, and whoever reads it can tell what is missing and why.
"""

import json
from pathlib import Path

from quivermq.frame import Frame, encode_control


def gap_frame(offsets: tuple[int, int], side_file: Path | None, reason: str, now_us: int) -> Frame:
    """A control frame over the offsets [start, end)."""
    start, end = offsets
    record = {
        "kind": "gap",
        "reason": reason,
        "quarantine": None if side_file is None else side_file.name,
    }
    frame = encode_control(json.dumps(record).encode(), count=end - start, timestamp=now_us)
    return frame.stamped(start, now_us)


def gap_of(frame: Frame) -> str | None:
    """What a gap frame says; None when the frame is something else."""
    if not frame.is_control:
        return None
    try:
        record = json.loads(bytes(frame.raw).rstrip(b"\0"))
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("kind") != "gap":
        return None
    return f"{record.get('reason')}; set aside in {record.get('quarantine')}"
