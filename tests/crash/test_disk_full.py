"""The disk fills up, at every byte: what does not fit is refused as a whole, and the log lives on."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.crash import SCENARIOS, Model, Scenario, Witness, every, glance, judge, seeds, told
from support.crash.scenarios import closing_and_opening, single_messages_at_fsync
from support.faulty_disk import FaultyDisk

from quivermq.errors import DiskFull

pytestmark = pytest.mark.fault("full", "engine")

# Prime, so that it stops sooner or later in the middle of everything that is written.
STRIDE_BYTES = every(163)

every_scenario = pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.run is not closing_and_opening], ids=str
)


@every_scenario
def test_what_does_not_fit_is_refused_and_what_comes_later_is_not(scenario: Scenario) -> None:
    refused, room_bytes = 1, 0
    while refused:
        start, ledger = scenario.prepared()
        disk = start.after_kill()
        witness = Witness(disk, ledger, scenario.settings)
        witness.tolerates_refusals = True
        disk.fill_after(room_bytes)
        scenario.run(witness)
        refused = witness.refused
        assert witness.log.end == ledger.end
        disk.description = f"{disk.description}, full after {room_bytes} bytes"

        disk.fill_after(None)
        with told(disk):
            judge(disk.after_kill(), ledger, "kill", scenario.settings)
            judge(disk.after_power_loss(room_bytes), ledger, "power", scenario.settings)
        witness.append("fsync", 300)
        ledger.check(witness.log, "kill")
        witness.close()
        judge(disk.after_power_loss(room_bytes), ledger, "power", scenario.settings)
        room_bytes += STRIDE_BYTES


def logs_of(disk: FaultyDisk) -> dict[Path, bytes]:
    return {path: data for path, data in disk.files().items() if path.suffix == ".log" and data}


@pytest.mark.parametrize("model", ["kill", "power"])
@every_scenario
def test_recovery_on_a_full_disk_succeeds_or_changes_no_byte(scenario: Scenario, model: Model) -> None:
    for crashed, ledger in scenario.crashes(model, seeds(1)):
        disk = crashed.after_kill()
        disk.fill_after(0)
        before = logs_of(disk)
        try:
            log = Witness(disk, ledger, scenario.settings).log
        except DiskFull:
            # There are bytes to set aside and no room for them, or there is no index to go by.
            assert logs_of(disk) == before, crashed.description
        else:
            ledger.check(log, model)
        disk.fill_after(None)
        glance(disk, ledger, model, scenario.settings)


def test_a_torn_tail_is_cut_on_a_full_disk_and_retention_makes_room() -> None:
    scenario = Scenario(single_messages_at_fsync)
    for crashed, ledger in scenario.crashes("kill", seeds(3)):
        crashed.fill_after(0)
        witness = Witness(crashed, ledger, replace(scenario.settings, segments_max=1))
        ledger.check(witness.log, "kill")
        ledger.adopt(witness.log)
        witness.hold()
        is_one = len(witness.log.segments) == 1
        witness.retain(floor=witness.log.end)
        if not is_one:
            witness.append("fsync", 10)
        crashed.fill_after(None)
        witness.append("fsync", 10)
        judge(crashed.after_power_loss(crashed.seed), ledger, "power", scenario.settings)
