"""Power loss under a broker: what it has answered over HTTP is there when it is back.

The broker is real, on a real socket, but for the disk, which is in memory and forgets what was not synced.
"""

import threading
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.broker import serving_engine
from support.fault_count import count_faults
from support.faulty_disk import FaultyDisk, Keep, PowerCut
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

from quivermq.chaos import Violation
from quivermq.chaos.http_clients import HttpClient
from quivermq.opening import open_directory
from quivermq.settings import EngineSettings, Settings

DATA = Path("/data")
SETTINGS = Settings(engine=EngineSettings(free_bytes_min=0))
CRASHES = 25
KEEPS: tuple[Keep, ...] = ("nothing", "random", "everything")
GROUP = "billing"


class Told:
    """What clients asked for, and what they were answered."""

    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.put: set[str] = set()
        self.acked: set[str] = set()
        self.wrong: list[AssertionError] = []


def work(caller: HttpClient, told: Told, life: int) -> None:
    """Publish in several ways, take and acknowledge, until the power goes."""
    for number in range(30):
        names = [f"{life}/{number}/{part}" for part in range(1 + number % 3)]
        told.tried.update(names)
        messages: list[dict[str, Any]] = [{"value": name, "dedup_id": name} for name in names]
        answer = caller.call("POST", "/v1/topics/orders/messages", {"messages": messages})
        if not answer.is_done:
            return
        told.put.update(names)
        taken = caller.receive("orders", GROUP, 2, lease_ms=3_600_000)
        values = {message["value"] for message in taken}
        assert values.isdisjoint(told.acked), "acknowledged, and delivered again"
        if taken:
            receipts = [message["receipt"] for message in taken]
            if not caller.settle("ack", "orders", GROUP, receipts).is_done:
                return
            told.acked |= values


def live(disk: FaultyDisk, told: Told, life: int) -> None:
    """One life of a broker, which ends at the step that the disk was told."""
    clock = ManualClock()
    try:
        engine = open_directory(DATA, SETTINGS, disk=disk, clock=clock, scheduler=ManualScheduler(clock))
    except PowerCut:
        return
    with serving_engine(engine) as served, closing(HttpClient(served.port, timeout_s=5)) as caller:
        client = threading.Thread(target=_until_gone, args=(caller, told, life), daemon=True)
        client.start()
        while client.is_alive():
            client.join(0.002)
            if disk.dead:
                # A process that is dead answers nobody.
                served.loop.call_soon_threadsafe(served.server.edge.abort)
        disk.stop()


def _until_gone(caller: HttpClient, told: Told, life: int) -> None:
    try:
        work(caller, told, life)
    except (OSError, HTTPException, Violation):
        # Of the last call nobody knows anything.
        return
    except AssertionError as error:
        told.wrong.append(error)


def check(disk: FaultyDisk, told: Told) -> None:
    with open_directory(DATA, SETTINGS, disk=disk) as engine:
        if "orders" not in engine.topics():
            assert not told.put
            return
        found = [record.value.decode() for record in engine.queue("orders").read(0, 0, 10_000)]
        assert len(set(found)) == len(found), "stored twice"
        assert told.put <= set(found), f"lost: {told.put - set(found)}"
        assert set(found) <= told.tried


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "is_about_names",
    [
        pytest.param(False, marks=pytest.mark.fault("power", "broker"), id="bytes"),
        pytest.param(True, marks=pytest.mark.fault("names", "broker"), id="names"),
    ],
)
def test_what_a_broker_has_answered_survives(is_about_names: bool, request: pytest.FixtureRequest) -> None:
    rng, told = Random(str(request.config.option.hypothesis_seed)), Told()
    disk = FaultyDisk()
    for life in range(request.config.getoption("--chaos-cycles") or CRASHES):
        disk.stop_at(disk.steps + rng.randint(30, 250))
        live(disk, told, life)
        if is_about_names:
            disk = disk.after_power_loss(life, keep="everything", names="nothing")
        else:
            disk = disk.after_power_loss(life, keep=rng.choice(KEEPS))
        count_faults()
        assert told.wrong == []
        check(disk.after_kill(), told)
    assert told.acked
