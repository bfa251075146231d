"""The metrics of a shared disk."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.faulty_disk import FaultyDisk
from support.manual_clock import ManualClock
from support.shared import CACHE, LIMITS, opened, settle, write

from quivermq.shared import open_shared
from quivermq.shared.conditional import ConditionalChunks
from quivermq.shared.measuring import measure
from quivermq.shared.memory import MemoryStore, StoreFault

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def values(disk: Any) -> dict[str, Any]:
    """By name, with the kind of a request behind it."""
    return {
        " ".join([sample["name"], *sample["labels"].values()]): sample.get("value", sample.get("count"))
        for sample in measure(disk)
    }


def test_what_is_done_is_measured() -> None:
    clock, limits = ManualClock(), replace(LIMITS, cache_bytes_max=5000)
    disk = open_shared(
        ConditionalChunks(MemoryStore()), CACHE, disk=FaultyDisk(), limits=limits, clock=clock
    )
    before = values(disk)
    assert before["quiver_store_commits_total"] == before["quiver_store_commit_seconds"] == 0
    assert "quiver_store_checkpoint_age_seconds" not in before
    write(disk, "a", bytes(1000))
    assert values(disk)["quiver_store_uncommitted_bytes"] > 1000
    disk.sync_directory(disk.root)
    after = values(disk)
    assert after["quiver_store_commits_total"] == after["quiver_store_commit_seconds"] == 1
    assert after["quiver_store_committed_bytes_total"] > 1000
    assert after["quiver_store_requests_total put"] == before["quiver_store_requests_total put"] + 1
    assert after["quiver_store_uncommitted_bytes"] == after["quiver_store_refuses"] == 0
    assert (after["quiver_store_cache_bytes"], after["quiver_store_cache_limit_bytes"]) == (1000, 5000)
    assert after["quiver_store_replay_chunks"] == before["quiver_store_replay_chunks"] + 1
    settle(disk)
    clock.advance(7)
    then = values(disk)
    assert then["quiver_store_checkpoint_age_seconds"] == 7
    assert then["quiver_store_replay_chunks"] < after["quiver_store_replay_chunks"]
    disk.abandon()


def test_a_store_that_refuses_is_told_until_it_does_not() -> None:
    store = MemoryStore()
    with opened(store) as disk:
        store.fault = lambda _: StoreFault.FAIL
        write(disk, "a", b"x")
        ticket = disk.commits.ticket()
        disk.commits.ordered(lambda: disk.commits.commit(ticket))
        with disk._committer.changed.lock:
            while disk.figures().trouble is None:
                assert disk._committer.changed.wait(10)
        assert disk.figures().trouble == "store_unreachable"
        assert values(disk)["quiver_store_refuses"] == 1
        store.fault = lambda _: None
        disk.commits.commit(ticket)
        assert values(disk)["quiver_store_refuses"] == 0


def test_the_reference_has_every_metric_and_no_other() -> None:
    limits = replace(LIMITS, cache_bytes_max=5000)
    with opened(MemoryStore(), limits) as disk:
        write(disk, "a", b"x")
        settle(disk)
        measured = {sample["name"] for sample in measure(disk)}
        assert all(sample["help"].endswith(".") for sample in measure(disk))
    assert measured == set(re.findall(r"quiver_store_\w+", PAGE.read_text()))
