"""Backups of a queue that many threads use: all that was acknowledged before is in them, and sound."""

import threading
from pathlib import Path

import pytest

import quivermq

THREADS = 4
PARTITIONS = 4
BACKUPS = 6
# So much is done between two backups, at least.
ROUNDS = 40


class Writer:
    """Puts, receives and acknowledges until it is told to stop, and counts what was acknowledged to it."""

    def __init__(self, mq: quivermq.Connection, number: int, stop: threading.Event) -> None:
        self.put = 0
        self.acked: set[bytes] = set()
        self._queue = mq.queue("orders", group="billing")
        self._number = number
        self._stop = stop
        self.rounds = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            values = [b"%d %d" % (self._number, self.put + each) for each in range(5)]
            self._queue.put_many(values, durability="os")
            self.put += len(values)
            for delivery in self._queue.get_many(3):
                delivery.ack()
                self.acked.add(delivery.value)
            self.rounds.release()

    def seen(self) -> tuple[int, set[bytes]]:
        return self.put, set(self.acked)


@pytest.mark.parametrize("files_max", [None, 16])
def test_all_that_was_acknowledged_before_is_in_it(tmp_path: Path, files_max: int | None) -> None:
    settings = {"engine": {} if files_max is None else {"files_max": files_max}}
    stop, moments = threading.Event(), []
    with quivermq.open(tmp_path / "data", settings) as mq:
        mq.create_topic("orders", partitions=PARTITIONS, segment_bytes=20_000)
        writers = [Writer(mq, number, stop) for number in range(THREADS)]
        for writer in writers:
            writer.thread.start()
        try:
            for _ in range(BACKUPS):
                for _ in range(ROUNDS):
                    writers[0].rounds.acquire()
                # Of a set that another thread adds to, a copy has at least what it had at the beginning.
                before = [writer.seen() for writer in writers]
                moments.append((before, mq.backup(tmp_path / "backups")))
        finally:
            stop.set()
            for writer in writers:
                writer.thread.join()
    for before, backup in moments:
        restored = tmp_path / f"restored {backup.number}"
        report = quivermq.restore(tmp_path / "backups", restored, at=backup.taken_us).report
        assert report.is_sound
        assert {finding.kind for finding in report.findings} <= {"index"}
        with quivermq.open(restored, settings) as mq:
            check(mq, before)


def check(mq: quivermq.Connection, before: list[tuple[int, set[bytes]]]) -> None:
    queue = mq.queue("orders", group="billing")
    found = {each.value for number in range(PARTITIONS) for each in queue.read(number, limit=100_000)}
    again = {delivery.value for delivery in queue.get_many(100_000)}
    for number, (put, acked) in enumerate(before):
        assert {b"%d %d" % (number, each) for each in range(put)} <= found
        assert not acked & again
