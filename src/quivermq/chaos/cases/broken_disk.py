"""A real broker whose disk fails, is full or read-only, or that has too many files open, for a while."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from quivermq.chaos import expect, wait_until
from quivermq.chaos.http_clients import HttpClient, Publisher
from quivermq.chaos.processes import BrokerProcess
from quivermq.chaos.system_faults import failing_calls, seen_by
from quivermq.chaos.trial import Trial

_TOPIC, _GROUP = "orders", "billing"
_DISK_BYTES = 6 * 1024 * 1024
_RESERVE_BYTES = 1024 * 1024
# A segment is soon full, so that the next publish needs another file.
_SEGMENT_MESSAGES = 4
_PUBLISHES = 5
_FIRST_SEGMENT = f"{0:020d}.log"


def input_output_errors(trial: Trial) -> None:
    """The publish fails, the partition is fenced, no later success is claimed, and others serve."""
    with trial.broker() as process:
        for cycle in range(trial.cycles):
            call = ("fdatasync", "writev")[cycle % 2]
            _fail_calls(process, trial, f"t{cycle}", call, trial.rng.randint(1, 3))
            trial.tried += 1


def _fail_calls(process: BrokerProcess, trial: Trial, topic: str, call: str, when: int) -> None:
    """Let the n-th call fail that is about one of two partitions, and start the broker again."""
    client, publisher = process.client(), Publisher(topic)
    client.call("POST", "/v1/topics", {"name": topic, "partitions": 2})
    for partition in (0, 1):
        expect(publisher.publish(client, partition).is_done, "nothing is wrong, and a publish fails")
    log = process.path / "topics" / topic / "p0" / "normal" / _FIRST_SEGMENT
    answers = [publisher.publish(client, 0) for _ in range(when - 1)]
    # Every call from here on, because strace counts those of each thread, and any thread may be the next.
    with failing_calls(process.pid, call, "EIO", "1+", trial.directory / "strace.txt", below=log):
        answers += [publisher.publish(client, 0) for _ in range(_PUBLISHES - when + 1)]
        expect(publisher.publish(client, 1).is_done, "another partition does not serve")
    done = [answer.is_done for answer in answers]
    expect(done == [True] * (when - 1) + [False] * (_PUBLISHES - when + 1), f"{call}, {when}: {done}")
    for answer in answers[when - 1 :]:
        expect(answer.code in ("storage_failed", "fsync_failed"), f"not a clean error: {answer}")
    expect(not publisher.publish(client, 0).is_done, "the partition is not fenced")
    expect(publisher.publish(client, 1).is_done, "another partition does not serve")
    publisher.check(client)
    process.restart()
    publisher.check(process.client())
    for partition in (0, 1):
        expect(publisher.publish(process.client(), partition).is_done, "it is still fenced")


def disk_full(trial: Trial) -> None:
    """Somebody else fills the disk, down to the reserve, or to nothing."""
    settings = {"engine__free_bytes_min": _RESERVE_BYTES, "engine__maintenance_interval_ms": 50}
    with trial.broker(disk_bytes=_DISK_BYTES, **settings) as process:
        orders = _Orders(process.client())
        ballast = seen_by(process.pid, trial.data) / "ballast"
        for _ in range(trial.cycles):
            orders.begin()
            _fill(ballast, keep_bytes=_RESERVE_BYTES // 2)
            orders.check_refusal()
            orders.check_acks()
            orders.check_reads()
            # Not even an ack fits now.
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
    with trial.broker(storage__segment_messages=_SEGMENT_MESSAGES) as process:
        orders = _Orders(process.client())
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
    log = trial.data / "topics" / _TOPIC / "p0" / "normal" / _FIRST_SEGMENT
    with trial.broker() as process:
        orders = _Orders(process.client())
        for _ in range(trial.cycles):
            orders.begin()
            with failing_calls(
                process.pid, "writev", error, "1+", trial.directory / "strace.txt", below=log
            ):
                orders.check_refusal()
                orders.check_acks()
                orders.check_reads()
            orders.check_recovery()
            trial.tried += 1


class _Orders:
    """One client, what it published, and what it has in hand."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._publisher = Publisher(_TOPIC)
        self._receipts: list[str] = []

    def begin(self) -> None:
        """Some messages are there, and some of them in hand."""
        for _ in range(6):
            expect(self._publisher.publish(self._client).is_done, "nothing is wrong, and a publish fails")
        self._receipts = [message["receipt"] for message in self._client.receive(_TOPIC, _GROUP, 4)]
        expect(self._receipts, "nothing is there to be had")

    def check_refusal(self) -> None:
        """A clean error that says it may pass."""
        wait_until(lambda: not self._publisher.publish(self._client).is_done, "nothing is refused")
        for _ in range(3):
            answer = self._publisher.publish(self._client)
            expect(answer.code in ("disk_full", "disk_refused"), f"not a clean error: {answer}")
            expect(answer.document["error"]["retryable"], f"it does not say that it may pass: {answer}")

    def check_acks(self) -> None:
        settled = self._client.settle("ack", _TOPIC, _GROUP, self._receipts)
        expect(settled.is_done, f"an ack was refused: {settled}")
        expect(all(result["ok"] for result in settled.document["results"]), f"an ack failed: {settled}")

    def check_reads(self) -> None:
        self._publisher.check(self._client)

    def check_recovery(self) -> None:
        """It recovers by itself, and nothing that was refused is there."""
        wait_until(lambda: self._publisher.publish(self._client).is_done, "it does not recover by itself")
        self._publisher.check(self._client)
