"""What the files of a segment are called: the base offset, 20 digits, so that names sort as offsets."""

import re
from pathlib import Path

_LOG = re.compile(r"(\d{20})\.log")


def log_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


def index_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.idx"


def base_offset_of(name: str) -> int | None:
    """The base offset of a log file's name; None for every other name."""
    match = _LOG.fullmatch(name)
    return int(match[1]) if match else None
