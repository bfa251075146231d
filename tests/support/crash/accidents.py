"""Logs to which one thing happens, where every byte of it is known."""

from dataclasses import replace
from pathlib import Path

from support.crash.ledger import Ledger
from support.crash.witness import LOG, SMALL, Witness
from support.faulty_disk import FaultyDisk

# Segments of three messages, each of them a frame of its own that shares no sector with the next.
THREES = replace(SMALL, segment_messages=3, segment_bytes=100_000, index_interval_bytes=2000)
SIZE = 1500


def log_of(base_offset: int) -> Path:
    return LOG / f"{base_offset:020d}.log"


def index_of(base_offset: int) -> Path:
    return LOG / f"{base_offset:020d}.idx"


def new_log(*, synced: int, unsynced: int) -> tuple[FaultyDisk, Ledger, list[tuple[int, int]]]:
    """A log whose process dies, and where each message's frame begins and ends in its segment."""
    disk, ledger = FaultyDisk(), Ledger()
    witness = Witness(disk, ledger, THREES)
    for _ in range(synced):
        witness.append("os", SIZE)
    witness.sync()
    for _ in range(unsynced):
        witness.append("os", SIZE)
    places = [
        (position, position + frame.header.frame_bytes)
        for segment in witness.log.segments
        for position, frame in segment.frames(segment.base_offset)
    ]
    disk.stop()
    return disk, ledger, places


def lose(disk: FaultyDisk, path: Path, position: int, end: int) -> None:
    """Put zeros where bytes were, as when a write never reached the disk and a later one did."""
    for place, byte in enumerate(disk.files()[path][position:end], position):
        if byte:
            disk.flip(path, place, byte)


def quarantine(disk: FaultyDisk) -> list[bytes]:
    return [data for path, data in disk.files().items() if path.parent.name == "@quarantine"]


def values(disk: FaultyDisk) -> list[int]:
    """The numbers of the messages that the log on the disk holds, once it is recovered."""
    records = Witness(disk, Ledger(), THREES).log.records()
    return [int(record.value[1 : record.value.index(b">")]) for record in records]


def die_before_the_directory_is_synced(disk: FaultyDisk, *, after: str) -> None:
    """Let the process die between a change of names and the sync that makes it durable."""
    seen: list[str] = []

    def watch(operation: str, path: Path) -> None:
        seen.append(operation)
        if after in seen and operation == "sync_directory":
            disk.stop()

    disk.before_step = watch
