"""What a broker answers to a receive: leases, and behind them frames."""

import json
from struct import pack
from typing import Any

from quivermq.frame import encode


def lease(runs: list[int], frames: int, **fields: Any) -> dict[str, Any]:
    usual = {
        "topic": "orders",
        "partition": 1,
        "priority": "low",
        "attempt": 2,
        "token": "1f",
        "deadline": 5,
        "is_last_attempt": False,
    }
    return {**usual, "runs": runs, "frames": frames, **fields}


def frame(*values: bytes, base: int) -> bytes:
    return bytes(encode(values, timestamp=7).stamped(base, 0))


def body(leases: list[dict[str, Any]], *frames: bytes) -> bytes:
    head = json.dumps({"leases": leases}).encode()
    return pack("<I", len(head)) + head + bytes(-(4 + len(head)) % 8) + b"".join(frames)
