"""What logs do all day, in small: each of these is one life of a process."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from quivermq.settings import StorageSettings
from support.crash.ledger import Ledger, Model
from support.crash.witness import SMALL, Witness
from support.faulty_disk import FaultyDisk, every_crash


class Scenario(NamedTuple):
    """One life of a process, which finds a log that was closed in good order."""

    run: Callable[[Witness], None]
    settings: StorageSettings = SMALL

    def __str__(self) -> str:
        return self.run.__name__

    def prepared(self) -> tuple[FaultyDisk, Ledger]:
        """The disk as the process finds it."""
        disk, ledger = FaultyDisk(), Ledger()
        witness = Witness(disk, ledger, self.settings)
        witness.append_many("os", 200, 20)
        witness.append("os", 300)
        witness.close()
        return disk, ledger

    def crashes(self, model: Model, seeds: range) -> Iterator[tuple[FaultyDisk, Ledger]]:
        """What every crash leaves."""
        start, history = self.prepared()

        def run(disk: FaultyDisk, acknowledged: list[Ledger]) -> None:
            ledger = history.copy()
            acknowledged.append(ledger)
            self.run(Witness(disk, ledger, self.settings))

        for disk, [ledger] in every_crash(run, model=model, seeds=seeds, start=start):
            yield disk, ledger


# Some messages fill more than a sector and some less; together they fill several segments.


def single_messages_at_fsync(witness: Witness) -> None:
    for size in (100, 700, 10, 600, 300, 900):
        witness.append("fsync", size)


def batches_at_os_with_syncs(witness: Witness) -> None:
    witness.append_many("os", 300, 10)
    witness.append_many("os", 500, 500, 1)
    witness.sync()
    witness.append_many("os", 50)
    witness.append("os", 620)
    witness.pass_time(1)
    assert witness.log.synced_end == witness.log.end
    witness.append_many("os", 400, 400)
    witness.append("os", 30)
    witness.append_many("os", 800)


def batches_at_os_over_segments_without_a_sync(witness: Witness) -> None:
    for size in (600, 500, 700, 900, 100, 1200, 40):
        witness.append_many("os", size, 20)


def messages_at_buffered_with_flushes(witness: Witness) -> None:
    # Four make a batch, the fifth writes them.
    for size in (10, 200, 300, 20, 700):
        witness.append("buffered", size)
    witness.flush()
    witness.append("buffered", 500)
    witness.pass_time(0.005)
    for size in (800, 300, 10):
        witness.append("buffered", size)
    witness.sync()
    witness.append("buffered", 100)
    witness.pass_time(1)
    witness.append("buffered", 100)


def all_durabilities_by_turns(witness: Witness) -> None:
    witness.append("os", 600)
    witness.append("buffered", 30)
    witness.append("fsync", 400)
    witness.append_many("buffered", 500, 5)
    witness.append("buffered", 700)
    witness.append("os", 10)
    witness.append_many("fsync", 900, 100)
    witness.append_many("os", 300)
    witness.append("buffered", 50)


def closing_and_opening(witness: Witness) -> None:
    witness.append_many("os", 600, 600)
    witness.append("buffered", 300)
    witness.close()
    again = Witness(witness.disk, witness.ledger, witness.log.settings)
    again.append("os", 600)
    again.close()


def retention_of_several_segments(witness: Witness) -> None:
    witness.hold()
    for size in (900, 900, 1500, 800, 1300):
        witness.append_many("os", size, 10)
    witness.retain(floor=8)
    witness.append("os", 900)
    witness.retain(floor=11)
    witness.append("fsync", 100)


def retention_by_age(witness: Witness) -> None:
    for size in (900, 900, 900):
        witness.append_many("os", size, 10)
    witness.pass_time(120)
    witness.retain(floor=7)
    witness.append("os", 100)
    witness.pass_time(120)
    # The active segment is too old as well, and makes way for an empty one.
    witness.retain(floor=10)
    witness.append("fsync", 100)


def truncation_inside_of_a_frame(witness: Witness) -> None:
    witness.append_many("os", 400, 300, 20)
    witness.append_many("os", 100, 100)
    witness.hold()
    witness.truncate(witness.ledger.end - 4)
    witness.append("fsync", 200)
    witness.append("os", 700)


def truncation_over_segments(witness: Witness) -> None:
    for size in (900, 900, 1500, 800, 1300):
        witness.append_many("os", size, 10)
    witness.hold()
    witness.truncate(8)
    witness.append_many("os", 300, 300)
    witness.truncate(4)
    witness.truncate(4)
    witness.append("os", 600)


def truncation_to_the_beginning(witness: Witness) -> None:
    for size in (900, 900, 900, 900):
        witness.append_many("os", size, 10)
    witness.retain(floor=6)
    witness.truncate(witness.log.start)
    witness.append("os", 600)
    witness.append("fsync", 600)


SCENARIOS = [
    Scenario(single_messages_at_fsync),
    Scenario(batches_at_os_with_syncs),
    Scenario(batches_at_os_over_segments_without_a_sync),
    Scenario(messages_at_buffered_with_flushes),
    Scenario(all_durabilities_by_turns),
    Scenario(closing_and_opening),
    Scenario(retention_of_several_segments, replace(SMALL, segments_max=2)),
    Scenario(retention_by_age, replace(SMALL, retention_ms=60_000)),
    Scenario(truncation_inside_of_a_frame),
    Scenario(truncation_over_segments),
    Scenario(truncation_to_the_beginning, replace(SMALL, segments_max=2)),
]
