"""A sync fails, at every step that is one: the log stops, says so, and keeps what it had promised."""

from collections.abc import Callable
from typing import get_args

import pytest
from support.crash import SCENARIOS, Ledger, Model, Scenario, Witness, judge, seeds
from support.crash.scenarios import batches_at_os_over_segments_without_a_sync
from support.faulty_disk import DiskStep, FaultyDisk, Keep

from quivermq.errors import Closing, FsyncFailed

pytestmark = pytest.mark.fault("eio", "engine")

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


def syncs_of(scenario: Scenario) -> list[DiskStep]:
    """The steps of a scenario that make something durable."""
    start, ledger = scenario.prepared()
    disk = start.after_kill()
    scenario.run(Witness(disk, ledger, scenario.settings))
    return [step for step in disk.history if step.operation.startswith("sync")]


def run_to_failure(scenario: Scenario, step: int, keep: Keep, seed: int) -> tuple[FaultyDisk, Ledger]:
    start, ledger = scenario.prepared()
    disk = start.after_kill()
    disk.seed = seed
    disk.fail_sync(at=step, keep=keep)
    witnesses: list[Witness] = []

    def run() -> None:
        witnesses.append(Witness(disk, ledger, scenario.settings))
        scenario.run(witnesses[0])

    with pytest.raises(FsyncFailed):
        run()
    for witness in witnesses:
        check_fence(witness)
    disk.description = f"after a failed sync at step {step} that kept {keep}, seed {seed}"
    return disk, ledger


def check_fence(witness: Witness) -> None:
    """The log can be read and closed. Everything else is refused, and nothing more is promised."""
    log, ledger = witness.log, witness.ledger
    ledger.promise(log.synced_end, "fsync")
    attempts: list[Callable[[], object]] = [
        lambda: log.append(b"x", durability="fsync"),
        lambda: log.append(b"x", durability="os"),
        lambda: log.append(b"x", durability="buffered"),
        lambda: log.append_many([b"x"]),
        log.flush,
        log.sync,
        log.retain,
        lambda: log.truncate(log.start),
    ]
    for attempt in attempts:
        with pytest.raises((FsyncFailed, Closing)):
            attempt()
    witness.clock.advance(3600)
    witness.scheduler.run_due()
    # What a truncation was about to remove may be gone already.
    for record in log.records(limit=ledger.killed_end - log.start):
        assert ledger.messages[record.offset].is_in(record)
    log.close()
    with pytest.raises(Closing):
        log.sync()


@every_scenario
def test_a_failed_sync_is_told_and_costs_nothing_that_was_promised(scenario: Scenario) -> None:
    for step in syncs_of(scenario):
        for seed in seeds(1):
            keep: Keep = get_args(Keep)[(step.number + seed) % 3]
            disk, ledger = run_to_failure(scenario, step.number, keep, seed)
            judge(disk.after_power_loss(seed), ledger, "power", scenario.settings)
            # Names that a sync of their directory has failed for cannot be written again as bytes can.
            # File systems know that, and stop working when it happens; the faulty disk does not.
            is_of_file = step.operation == "sync"
            judge(disk.after_kill(), ledger, "kill", scenario.settings, then_power_loss=is_of_file)


@pytest.mark.parametrize("model", ["kill", "power"])
def test_a_failed_sync_of_the_recovery_costs_nothing_either(model: Model) -> None:
    scenario = Scenario(batches_at_os_over_segments_without_a_sync)
    for crashed, ledger in scenario.crashes(model, seeds(1)):
        rehearsal = crashed.after_kill()
        Witness(rehearsal, Ledger())
        for step in rehearsal.history:
            if step.operation != "sync":
                continue
            disk = crashed.after_kill()
            disk.fail_sync(at=step.number, keep="nothing")
            with pytest.raises(FsyncFailed):
                Witness(disk, Ledger())
            judge(disk.after_kill(), ledger, model)
            judge(disk.after_power_loss(disk.seed), ledger, "power")
