"""A real broker whose disk is full or read-only, or that has too many files open, for a while."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from quivermq.chaos.broker import broker
from quivermq.chaos.expectation import expect
from quivermq.chaos.http import Caller
from quivermq.chaos.publisher import Publisher
from quivermq.chaos.small_disk import seen_by
from quivermq.chaos.tracing import failing
from quivermq.chaos.trial import Trial, wait_until

_TOPIC, _GROUP = "orders", "billing"
_DISK_BYTES = 6 * 1024 * 1024
_RESERVE_BYTES = 1024 * 1024
_BLOCK = b"\0" * 65536
# A segment is soon full, so that the next publish needs another file.
_SEGMENT_MESSAGES = 4
_CODES = {"disk_full", "disk_refused"}


def disk_full(trial: Trial) -> None:
    """Somebody else fills the disk, down to the reserve, or to nothing."""
    settings = {"engine__free_bytes_min": _RESERVE_BYTES, "engine__maintenance_interval_ms": 50}
    with trial.nursery() as lives, broker(lives, trial.data, disk_bytes=_DISK_BYTES, **settings) as process:
        orders = _Orders(process.caller())
        ballast = seen_by(process.pid, trial.data) / "ballast"
        for _ in range(trial.cycles):
            orders.begin()
            _fill(ballast, keep_bytes=_RESERVE_BYTES // 2)
            orders.check_refusal()
            orders.check_acks()
            orders.check_reads()
            # Not even an ack fits now, and it has to be told so.
            orders.begin_with(orders.in_hand)
            _fill(ballast, keep_bytes=0)
            orders.check_refusal()
            orders.check_reads()
            ballast.unlink()
            orders.check_recovery()
            trial.tried += 2


def _fill(ballast: Path, keep_bytes: int) -> None:
    """Leave only so much room."""
    with ballast.open("ab") as file:
        room = os.statvfs(ballast)
        left = room.f_bavail * room.f_frsize - keep_bytes
        file.write(b"\0" * max(0, left))


def too_many_files(trial: Trial) -> None:
    """No file can be opened any more, or only one or two: what needs more is refused."""
    with (
        trial.nursery() as lives,
        broker(lives, trial.data, storage__segment_messages=_SEGMENT_MESSAGES) as process,
    ):
        orders = _Orders(process.caller())
        for _ in range(trial.cycles):
            orders.begin()
            with _few_files(process.pid, trial.rng):
                orders.check_refusal()
                orders.check_acks()
            orders.check_recovery()
            orders.check_reads()
            trial.tried += 1


@contextmanager
def _few_files(pid: int, rng: Random) -> Iterator[None]:
    """Let a process open hardly any file more than it has."""
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + rng.randrange(3), usual[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


def refused_writes(trial: Trial, error: str) -> None:
    """Every write to a partition is answered as by a disk that is read-only, or full, or over quota."""
    with trial.nursery() as lives, broker(lives, trial.data) as process:
        orders = _Orders(process.caller())
        for _ in range(trial.cycles):
            orders.begin()
            log = trial.data / "topics" / _TOPIC / "p0" / "normal" / f"{0:020d}.log"
            with failing(process.pid, "writev", error, "1+", trial.directory / "strace.txt", below=log):
                orders.check_refusal()
                orders.check_acks()
                orders.check_reads()
            orders.check_recovery()
            trial.tried += 1


class _Orders:
    """One client, what it published, and what it has in hand."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._publisher = Publisher(_TOPIC)
        self.in_hand: list[str] = []

    def begin(self) -> None:
        """Some messages are there, and some of them in hand."""
        for _ in range(6):
            expect(self._publisher.publish(self._caller).is_done, "nothing is wrong, and a publish fails")
        self.begin_with([m["receipt"] for m in self._caller.receive(_TOPIC, _GROUP, 4)])
        expect(self.in_hand, "nothing is there to be had")

    def begin_with(self, receipts: list[str]) -> None:
        self.in_hand = receipts

    def check_refusal(self) -> None:
        """A clean error that says it may pass."""
        wait_until(lambda: not self._publisher.publish(self._caller).is_done, "nothing is refused")
        for _ in range(3):
            answer = self._publisher.publish(self._caller)
            expect(answer.code in _CODES, f"not a clean error: {answer}")
            expect(answer.document["error"]["retryable"], f"it does not say that it may pass: {answer}")

    def check_acks(self) -> None:
        settled = self._caller.settle("ack", _TOPIC, _GROUP, self.in_hand)
        expect(settled.is_done, f"an ack was refused: {settled}")
        expect(all(result["ok"] for result in settled.document["results"]), f"an ack failed: {settled}")
        self.in_hand = []

    def check_reads(self) -> None:
        self._publisher.check(self._caller)

    def check_recovery(self) -> None:
        """It recovers by itself, and nothing that was refused is there."""
        wait_until(lambda: self._publisher.publish(self._caller).is_done, "it does not recover by itself")
        self._publisher.check(self._caller)
