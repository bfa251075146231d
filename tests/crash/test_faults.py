"""Every case of `quiver chaos`, against the engine, a broker, a bucket, a cluster; not kills, nor the soak.

Those have files of their own, and so have the tests that go through every step instead of some by chance.
"""

import pytest
from support.fault_record import MakeTrial

from quivermq.chaos.cases import CASES, Case

# More than a round of `quiver chaos` tries.
CYCLES = {
    ("power", "engine"): 60,
    ("names", "engine"): 40,
    ("eio", "engine"): 40,
    ("eio", "broker"): 6,
    ("full", "engine"): 12,
    ("full", "broker"): 2,
    ("damage", "engine"): 77,
    ("locked", "broker"): 2,
    ("lease", "engine"): 2,
    ("interrupted", "engine"): 40,
    ("interrupted", "broker"): 20,
    ("producer", "broker"): 8,
    ("hostile", "broker"): 200,
    ("takeover", "bucket"): 80,
    ("zombie", "bucket"): 20,
    ("store", "bucket"): 24,
    ("etcd", "cluster"): 1,
    ("store", "cluster"): 1,
    ("skew", "cluster"): 1,
}
# What happens on a disk in memory, or is quick where a sync takes no time.
IN_MEMORY = {"interrupted"}


def cases() -> list[object]:
    return [
        pytest.param(
            case,
            id=f"{case.fault}-{case.against}-{case.name}".replace(" ", "_"),
            marks=[pytest.mark.fault(case.fault, case.against), pytest.mark.damages],
        )
        for case in CASES
        if case.fault != "kill" and not case.only_if_asked
    ]


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("case", cases())
def test_it_holds(case: Case, make_trial: MakeTrial) -> None:
    assert (reason := case.why_not()) is None, reason
    cycles = CYCLES.get((case.fault, case.against), case.cycles)
    case.run(make_trial(cycles, in_memory=case.fault in IN_MEMORY))
