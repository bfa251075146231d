"""The frame that stands where damaged frames were: it takes their offsets and says where they went.

So a repaired log has every offset it ever had, and whoever reads it can tell what is missing and why.
"""

import json
from pathlib import Path

from quivermq.errors import InvalidFrame
from quivermq.frame import Frame, encode_control

_COUNT_MAX = 2**32 - 1


def gap_frames(offsets: tuple[int, int], side_file: Path | None, reason: str, now_us: int) -> list[Frame]:
    """Control frames over the offsets [start, end): one, unless a header cannot count that far."""
    record = {
        "kind": "gap",
        "reason": reason,
        "quarantine": None if side_file is None else side_file.name,
    }
    body = json.dumps(record).encode()
    return [
        encode_control(body, count=min(_COUNT_MAX, offsets[1] - start), timestamp=now_us).stamped(
            start, now_us
        )
        for start in range(*offsets, _COUNT_MAX)
    ]


def gap_of(frame: Frame) -> str | None:
    """What a gap frame says; None when the frame is something else."""
    if not frame.is_control:
        return None
    try:
        return _gap_text(json.loads(bytes(frame.raw).rstrip(b"\0")))
    except (ValueError, RecursionError, InvalidFrame):
        return None


def _gap_text(record: object) -> str | None:
    if not isinstance(record, dict) or record.get("kind") != "gap":
        return None
    side_file = record.get("quarantine")
    where = "nothing was left to set aside" if side_file is None else f"set aside in {side_file}"
    return f"{record.get('reason')}; {where}"
