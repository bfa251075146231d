"""Any damage to any file of a FluxMQ directory: nothing is made up, nothing is lost without a word."""

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sources import DISK, Change, changes, damaged, topic_named

from quivermq.importers.fluxmq import open_source
from quivermq.importers.model import Item

SAMPLES = Path(__file__).parents[1] / "fixtures" / "fluxmq"

fuzzed = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def contents(item: Item) -> tuple[object, ...]:
    return item.identity, item.id, item.key, item.value, item.headers, item.timestamp_us, item.expires_at_us


@cache
def whole_messages(store: str) -> dict[int, tuple[object, ...]]:
    [topic] = open_source(SAMPLES / store, DISK).topics
    return {item.identity: contents(item) for item in topic.items()}


@fuzzed
@given(st.sampled_from(["none", "zstd"]), st.lists(changes(), min_size=1, max_size=4))
def test_a_damaged_log_gives_messages_that_were_there_and_tells_of_the_others(
    scratch: Path, store: str, damage: list[Change]
) -> None:
    before = whole_messages(store)
    directory = scratch / store
    shutil.copytree(SAMPLES / store / "queues/orders/segments", directory, dirs_exist_ok=True)
    path = directory / "00000000000000000000.seg"
    path.write_bytes(damaged(path.read_bytes(), damage))
    source = open_source(directory, DISK)
    after = {item.identity: contents(item) for item in source.topics[0].items()}
    assert list(after) == sorted(after)
    assert after.items() <= before.items()
    assert source.findings.damages or len(after) == len(before)


@fuzzed
@given(st.lists(changes(), min_size=1, max_size=3))
def test_damaged_state_costs_no_message_and_no_group_goes_too_far(
    scratch: Path, damage: list[Change]
) -> None:
    directory = scratch / "store"
    shutil.copytree(SAMPLES / "none", directory, dirs_exist_ok=True)
    # The shards alone: what the state says of the cursor, nobody can check.
    for path in sorted(directory.rglob("pel_*.json")):
        path.write_bytes(damaged(path.read_bytes(), damage))
    source = open_source(directory, DISK)
    topic = topic_named(source.topics, "orders")
    assert len(list(topic.items())) == 180
    positions = {group.name: group.positions[0] for group in topic.groups}
    assert (positions["audit"].next, positions["workers"].next) == (100, 12)
    if (
        all("cannot be read" in each.problem for each in source.findings.kept)
        and source.findings.count == 16
    ):
        # Every shard is lost, so everything above the floor is taken for pending.
        assert positions["workers"].unfinished.keys() >= {4, 6, 7, 8, 9, 10, 11}
