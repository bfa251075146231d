"""An archive and a log that have other messages at the same offsets do not belong together."""

from support.archives import LANE, archive_log, merge
from support.faulty_disk import FaultyDisk
from support.logs import Logs

from quivermq.archive import ArchivedLane, Manifest
from quivermq.archive.reading import find_difference
from quivermq.log import Log


def difference(manifest: Manifest, log: Log) -> str | None:
    return find_difference(manifest.lane(LANE), log.start, log.end, log.frames)


def fill(log: Log, count: int, logs: Logs) -> None:
    for _ in range(count):
        log.append_many([b"x"] * 5)
        logs.clock.advance(1)


def test_what_was_archived_from_a_log_belongs_to_it(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    assert find_difference(ArchivedLane(), log.start, log.end, log.frames) is None
    fill(log, 4, faulty_logs)
    manifest = archive_log(faulty_disk, log, 13, piece_messages=4)
    assert manifest.lane(LANE).last is not None
    assert difference(manifest, log) is None
    fill(log, 1, faulty_logs)
    assert difference(manifest, log) is None
    # A file that stands in for others knows the same.
    assert merge(faulty_disk).lane(LANE).last == manifest.lane(LANE).last


def test_a_log_that_is_shorter_is_another_one(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log, other = faulty_logs.open(), faulty_logs.open("other")
    fill(log, 4, faulty_logs)
    fill(other, 3, faulty_logs)
    assert difference(archive_log(faulty_disk, log), other) == (
        "the archive ends at offset 20, and the log at 15"
    )


def test_a_log_with_other_messages_there_is_another_one(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log, other = faulty_logs.open(), faulty_logs.open("other")
    fill(log, 4, faulty_logs)
    fill(other, 6, faulty_logs)
    manifest = archive_log(faulty_disk, log, 18)
    assert "the message at offset 17 came into the log at" in (difference(manifest, other) or "")


def test_what_the_log_no_longer_has_is_not_compared(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open(segment_messages=5)
    fill(log, 6, faulty_logs)
    manifest = archive_log(faulty_disk, log, 20)
    log.retain(finished=25)
    assert log.start == 25
    assert difference(manifest, log) is None


def test_a_divided_frame_is_the_same(faulty_disk: FaultyDisk, faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    fill(log, 4, faulty_logs)
    manifest = archive_log(faulty_disk, log, 18)
    log.truncate(18)
    assert difference(manifest, log) is None
