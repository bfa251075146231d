"""Segments and logs with anything done to their bytes: nothing is raised, and nothing is made up."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.ledgerq_files import Entry, segment_header
from support.sources import DISK
from support.tinymq_files import ack, put

from quivermq.importers import ledgerq, tinymq
from quivermq.importers.model import ImportSource, Item

ENTRIES = [
    Entry(id=n, payload=b"payload %d" % n * n, headers={b"n": b"%d" % n} if n % 2 else None, priority=n % 3)
    for n in range(1, 9)
]
SEGMENT = segment_header() + b"".join(map(bytes, ENTRIES))
LINES = [put(n, b"payload %d" % n, headers={"n": str(n)}, retry_count=n % 3) for n in range(1, 9)]
LOG = b"".join(line + b"\n" for line in (*LINES, ack(3)))

Change = Callable[[bytes], bytes]


def changes(size: int) -> st.SearchStrategy[list[Change]]:
    """Things that happen to files."""
    place = st.integers(0, size - 1)

    def flip(at: int, bit: int) -> Change:
        return lambda data: (
            data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] if at < len(data) else data
        )

    def cut(start: int, length: int) -> Change:
        return lambda data: data[:start] + data[start + length :]

    def insert(at: int, more: bytes) -> Change:
        return lambda data: data[:at] + more + data[at:]

    def repeat(start: int, length: int) -> Change:
        return lambda data: data[: start + length] + data[start:]

    each = (
        st.builds(flip, place, st.integers(0, 7))
        | st.builds(cut, place, st.integers(1, 200))
        | st.builds(insert, place, st.binary(max_size=80))
        | st.builds(repeat, place, st.integers(1, 200))
    )
    return st.lists(each, min_size=1, max_size=4)


def mutated(data: bytes, made: list[Change]) -> bytes:
    for change in made:
        data = change(data)
    return data


def contents(item: Item) -> tuple[str, bytes, int, tuple[tuple[str, bytes], ...]]:
    return item.id, item.value, item.timestamp_us, tuple(sorted((item.headers or {}).items()))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def read(opened: ImportSource) -> list[Item]:
    return [item for topic in opened.topics for item in (*topic.items(), *topic.dead_letters())]


fuzzed = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzzed
@given(changes(len(SEGMENT)))
def test_a_segment(source: Path, made: list[Change]) -> None:
    path = source / "ledgerq"
    path.mkdir(exist_ok=True)
    whole = path / f"{11:020d}.log"
    whole.write_bytes(segment_header(11))
    file = path / f"{1:020d}.log"
    file.write_bytes(SEGMENT)
    originals = {contents(item) for item in read(ledgerq.open_source(path, DISK))}
    assert len(originals) == len(ENTRIES)
    file.write_bytes(mutated(SEGMENT, made))
    opened = ledgerq.open_source(path, DISK)
    found = read(opened)
    assert {contents(item) for item in found} <= originals
    assert len({item.identity for item in found}) == len(found)
    assert len(found) >= len(ENTRIES) or opened.findings.damages > 0


@fuzzed
@given(changes(len(LOG)))
def test_a_log(source: Path, made: list[Change]) -> None:
    path = source / "tinymq"
    path.mkdir(exist_ok=True)
    (path / "other.log").write_bytes(put(99) + b"\n")
    file = path / "orders.log"
    file.write_bytes(LOG)
    originals = {contents(item) for item in read(tinymq.open_source(path, DISK))}
    data = mutated(LOG, made)
    file.write_bytes(data)
    opened = tinymq.open_source(path, DISK)
    found = {contents(item) for item in read(opened)}
    # A line whose checksum was taken away is believed, as older ones are.
    if data.count(b'"checksum":') == data.count(b'"type":'):
        assert found <= originals
    assert (
        len(found) >= len(originals)
        or opened.findings.damages > 0
        or data.count(b"PUT") < LOG.count(b"PUT")
    )
