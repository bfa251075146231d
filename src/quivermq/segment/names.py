"""What the files of a segment are called: the base offset, 20 digits, so that names sort as offsets."""

import re
from pathlib import Path

# [0-9] and not \d, which takes the digits of every script.
_STEM = re.compile(r"[0-9]{20}")
_OFFSET_MAX = 2**63 - 1


def log_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


def index_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.idx"


def base_offset_of(name: str, suffix: str = ".log") -> int | None:
    """The base offset of a file's name with that suffix; None for every other name."""
    stem = name.removesuffix(suffix)
    if stem == name or not _STEM.fullmatch(stem):
        return None
    base_offset = int(stem)
    return base_offset if base_offset <= _OFFSET_MAX else None
