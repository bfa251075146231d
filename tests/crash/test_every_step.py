"""Every scenario dies at every step, by kill -9 and by power loss, and what is left is judged."""

import pytest
from support.crash import (
    SCENARIOS,
    Ledger,
    Model,
    Scenario,
    Witness,
    every,
    judge,
    judge_interrupted_recovery,
    seeds,
)
from support.faulty_disk import FaultyDisk, every_crash

pytestmark = pytest.mark.fault("power", "engine")

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
both_models = pytest.mark.parametrize("model", ["kill", "power"])
all_models = pytest.mark.parametrize("model", ["kill", "power", "store"])


@all_models
@every_scenario
def test_a_crash_at_every_step(scenario: Scenario, model: Model) -> None:
    # After a kill, the end of one step is the beginning of the next.
    for disk, ledger in scenario.crashes(model, seeds(2 if model == "kill" else 3)):
        judge(disk, ledger, model, scenario.settings)


@both_models
@every_scenario
def test_a_crash_at_every_step_of_the_recovery_after_a_crash(scenario: Scenario, model: Model) -> None:
    seen = set()
    for disk, ledger in scenario.crashes(model, seeds(1)):
        files = tuple(disk.files().items())
        if files in seen:
            continue
        seen.add(files)
        if len(seen) % every(4) == 0:
            judge_interrupted_recovery(disk, ledger, model, scenario.settings, seed=len(seen))


@both_models
def test_a_crash_while_a_data_directory_is_made(model: Model) -> None:
    def run(disk: FaultyDisk, acknowledged: list[Ledger]) -> None:
        acknowledged.append(Ledger())
        witness = Witness(disk, acknowledged[0])
        witness.append("fsync")
        witness.append("os")

    for disk, [ledger] in every_crash(run, model=model, seeds=seeds(3)):
        judge(disk, ledger, model)
        judge_interrupted_recovery(disk, ledger, model, seed=disk.seed)
