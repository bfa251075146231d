"""The disk refuses something for a moment, at every step: it is read-only, or too many files are open.

What was refused is not there, what was promised is, and the log goes on by itself.
"""

import pytest
from support.crash import SCENARIOS, Scenario, Witness, glance, told
from support.crash.scenarios import closing_and_opening
from support.fault_count import count_faults

pytestmark = pytest.mark.fault("full", "engine")

# A read-only disk takes none of the first, and a process with too many open files gets none of the last.
READ_ONLY = ("append", "create", "make_directory", "rename", "remove")
TOO_MANY_FILES = ("create", "sync_directory")

every_scenario = pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if each.run is not closing_and_opening], ids=str
)


def steps_of(scenario: Scenario, operations: tuple[str, ...]) -> list[int]:
    """The steps of a scenario at which one of the operations is asked for."""
    start, ledger = scenario.prepared()
    disk = start.after_kill()
    witness = Witness(disk, ledger, scenario.settings)
    begun = disk.steps
    scenario.run(witness)
    return [step.number for step in disk.history[begun:] if step.operation in operations]


@pytest.mark.parametrize("operations", [READ_ONLY, TOO_MANY_FILES], ids=["read-only", "too many files"])
@every_scenario
def test_what_is_refused_is_not_there_and_the_log_goes_on(
    scenario: Scenario, operations: tuple[str, ...]
) -> None:
    for turn, step in enumerate(steps_of(scenario, operations)):
        start, ledger = scenario.prepared()
        disk = start.after_kill()
        witness = Witness(disk, ledger, scenario.settings)
        witness.tolerates_refusals = True
        # Twice in a row every other time: what is done about the first may be refused as well.
        disk.refuse(*operations, at=range(step, step + 1 + turn % 2))
        disk.description += f", refused at step {step}"
        with told(disk):
            scenario.run(witness)
            disk.refuse()
            count_faults()
            assert witness.log.end == ledger.end
            witness.append("fsync", 300)
            ledger.check(witness.log, "kill")
            if turn % 3:
                glance(disk.after_power_loss(disk.steps), ledger, "power", scenario.settings)
            else:
                glance(disk.after_kill(), ledger, "kill", scenario.settings)
