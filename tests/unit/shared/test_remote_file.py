"""A stored file reads as a file of the disk does, and cannot be written."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from support.manual_clock import ManualClock
from support.shared import LIMITS

from quivermq.disk import File
from quivermq.errors import StorageFailed
from quivermq.shared.blocks import Blocks
from quivermq.shared.checkpoint import Part
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.memory import MemoryStore
from quivermq.shared.remote_file import RemoteFile

PATH = Path("/data/a")
PIECES = (b"0123456789" * 3, b"abcdefg", b"tail")
WHOLE = b"".join(PIECES)


def stored(*pieces: bytes, tail: bytes = b"", on_close: Callable[[], None] = lambda: None) -> RemoteFile:
    store = MemoryStore({f"file/{place}": piece for place, piece in enumerate(pieces)})
    parts = [Part(f"file/{place}", len(piece), crc32c(piece)) for place, piece in enumerate(pieces)]
    limits = replace(LIMITS, block_bytes=8)
    blocks = Blocks(ConditionalChunks(store), limits, ManualClock())
    return RemoteFile(PATH, parts, blocks, tail=tail, on_close=on_close)


FORMS: dict[str, Callable[[], RemoteFile]] = {
    "parts": lambda: stored(*PIECES),
    "parts and a tail": lambda: stored(*PIECES[:2], tail=PIECES[2]),
    "a tail": lambda: stored(tail=WHOLE),
    "one part": lambda: stored(WHOLE),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_reads_and_maps_what_is_stored(form: str) -> None:
    file: File = FORMS[form]()
    assert (file.path, file.size()) == (PATH, len(WHOLE))
    for position in range(len(WHOLE) + 3):
        for length in (0, 1, 7, 8, 9, 100):
            assert file.read(position, length) == WHOLE[position : position + length]
    for length in (0, 5, 31, len(WHOLE)):
        memory = file.map(length)
        assert memory == WHOLE[:length]
        assert memory.readonly
    file.close()
    # As it is for a file of the disk.
    assert memory == WHOLE


def test_it_maps_no_more_than_it_is_asked_for_and_once() -> None:
    store = MemoryStore({"file/0": PIECES[0]})
    parts = [Part("file/0", 30, crc32c(PIECES[0])), Part("file/1", 7, crc32c(PIECES[1]))]
    file = RemoteFile(PATH, parts, Blocks(ConditionalChunks(store), LIMITS, ManualClock()))
    assert file.map(30) == PIECES[0]
    assert file.map(20) == PIECES[0][:20]
    assert len(store.steps) == 1


def test_nothing_is_written() -> None:
    file: File = stored(*PIECES)
    for act in (
        lambda: file.append([b"more"]),
        lambda: file.rewrite(0, b"0"),
        lambda: file.truncate(0),
    ):
        with pytest.raises(StorageFailed, match="/data/a is open for reading only"):
            act()
    file.sync()
    assert file.read(0, 100) == WHOLE


def test_who_has_it_closed_is_told_once() -> None:
    told: list[bool] = []
    file = stored(*PIECES, on_close=lambda: told.append(True))
    file.close()
    file.close()
    assert told == [True]
    with pytest.raises(AssertionError, match="is closed"):
        file.read(0, 1)
