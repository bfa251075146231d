"""A log that does its work under supervision: every promise it makes goes into a ledger."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quivermq.errors import DiskRefused
from quivermq.frame import Frame
from quivermq.log import DataDirectory
from quivermq.settings import Durability, StorageSettings
from support.crash.ledger import Ledger, Message
from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

DATA = Path("/data")
LOG = DATA / "log"

# Small enough that a handful of messages makes segments roll and the index grow. Two frames seldom
# share a sector, so that each can be lost alone.
SMALL = StorageSettings(
    segment_bytes=2000,
    index_interval_bytes=400,
    batch_messages=4,
    fsync_interval_ms=1000,
    linger_ms=5,
)


class Witness:
    """Opens the log on a disk, recovering it, and keeps the ledger while it is used."""

    def __init__(self, disk: FaultyDisk, ledger: Ledger, settings: StorageSettings = SMALL) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.refused = 0
        self.tolerates_refusals = False
        self.data = DataDirectory(DATA, settings, disk=disk, clock=self.clock, scheduler=self.scheduler)
        self.log = self.data.log(LOG.name)
        self._held: list[Frame] = []

    def append(self, durability: Durability, size: int = 100) -> None:
        """Append one message."""
        with self._offered([size]) as (offset, [message]):
            got = self.log.append(**message._asdict(), durability=durability)
            assert got == offset
            self.ledger.promise(self.ledger.end, durability)

    def append_many(self, durability: Durability, *sizes: int) -> None:
        """Append a batch."""
        with self._offered(list(sizes), batch=True) as (offset, messages):
            got = self.log.append_many(
                [message.value for message in messages],
                keys=[message.key for message in messages],
                headers=[message.headers for message in messages],
                timestamp=[message.timestamp or self.clock.now_us() for message in messages],
                expires_at=[message.expires_at for message in messages],
                dedup_ids=[message.dedup_id for message in messages],
                durability=durability,
            )
            assert got == offset
            # There is no buffer for a batch: it goes to the operating system at least.
            self.ledger.promise(self.ledger.end, "os" if durability == "buffered" else durability)

    def flush(self) -> None:
        with self._tolerating():
            self.log.flush()
            self.ledger.promise(self.ledger.end, "os")

    def sync(self) -> None:
        with self._tolerating():
            self.log.sync()
            self.ledger.promise(self.ledger.end, "fsync")

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and do what the log wanted to be done by now."""
        self.clock.advance(seconds)
        with self._tolerating():
            self.scheduler.run_due()
            if seconds * 1000 >= self.log.settings.linger_ms:
                self.ledger.promise(self.ledger.end, "os")

    def retain(self, floor: int) -> None:
        """Remove what the settings no longer keep before `floor`."""
        self.ledger.start_max = max(floor, self.ledger.start)
        with self._tolerating():
            self.log.retain(floor=floor)
            self.ledger.retained(self.log.start)

    def truncate(self, end: int) -> None:
        """Remove everything from `end` on, or as much of it as there is."""
        end = min(max(end, self.log.start), self.log.end)
        self.ledger.expect_truncation(end)
        with self._tolerating():
            try:
                self.log.truncate(end)
            except DiskRefused:
                # What was refused may have been done in part, and the rest is done by itself.
                while self._is_refusing():
                    self.clock.advance(1.1)
                    with suppress(DiskRefused):
                        self.scheduler.run_due()
                assert self.log.end >= end
                self.ledger.truncated(self.log.end)
                raise
            self.ledger.truncated(end)

    def _is_refusing(self) -> bool:
        try:
            self.log.find_time(0)
        except DiskRefused:
            return True
        return False

    def hold(self) -> None:
        """Map everything that can be read now, and never let go of it."""
        self._held += self.log.frames(mapped=True)

    def close(self) -> None:
        """Close the log, which makes everything safe."""
        self.data.close()
        self.ledger.promise(self.ledger.end, "fsync")

    @contextmanager
    def _offered(self, sizes: list[int], *, batch: bool = False) -> Iterator[tuple[int, list[Message]]]:
        offset, messages = self.ledger.expect(sizes, batch=batch)
        with self._tolerating():
            try:
                yield offset, messages
            except DiskRefused:
                self.ledger.refuse(offset)
                raise

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        try:
            yield
        except DiskRefused:
            self.refused += 1
            if not self.tolerates_refusals:
                raise
        # The log's own word for it: whatever lies before must survive.
        self.ledger.promise(self.log.durable_end, "fsync")
