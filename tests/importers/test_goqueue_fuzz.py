"""Any damage to any file of a GoQueue directory: nothing is made up, nothing is lost without a word."""

import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sources import DISK, Change, changes, damaged

from quivermq.importers.goqueue import open_source
from quivermq.importers.model import Item

SAMPLES = Path(__file__).parents[1] / "fixtures" / "goqueue"

fuzzed = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def contents(item: Item) -> tuple[object, ...]:
    headers = tuple((item.headers or {}).items())
    return item.identity, item.key, item.value, headers, item.timestamp_us, item.level, item.priority


@cache
def whole_messages() -> dict[int, tuple[object, ...]]:
    [topic] = open_source(SAMPLES / "partition_multi", DISK).topics
    return {item.identity: contents(item) for item in topic.items()}


@fuzzed
@given(st.lists(changes(), min_size=1, max_size=4))
def test_a_damaged_log_gives_messages_that_were_there_and_tells_of_the_others(
    scratch: Path, damage: list[Change]
) -> None:
    before = whole_messages()
    directory = scratch / "partition"
    shutil.copytree(SAMPLES / "partition_multi", directory, dirs_exist_ok=True)
    # Of a log that lost its end between two records, nobody could say so.
    path = directory / "00000000000000000000.log"
    path.write_bytes(damaged(path.read_bytes(), damage))
    source = open_source(directory, DISK)
    after = {item.identity: contents(item) for item in source.topics[0].items()}
    assert list(after) == sorted(after)
    # No checksum covers the flags of a record, which are told where they cannot be right.
    assert len(after.items() - before.items()) <= len(damage)
    assert source.findings.damages or len(after) == len(before)


@fuzzed
@given(st.sampled_from(["delay", "offsets", "transactions"]), st.lists(changes(), min_size=1, max_size=3))
def test_damaged_state_never_costs_a_message_of_another_topic(
    scratch: Path, part: str, damage: list[Change]
) -> None:
    directory = scratch / "broker"
    if not directory.exists():
        shutil.copytree(SAMPLES / "broker_data_dir", directory)
    for path in sorted((SAMPLES / "broker_data_dir" / part).rglob("*.*")):
        target = directory / path.relative_to(SAMPLES / "broker_data_dir")
        target.write_bytes(damaged(path.read_bytes(), damage))
    source = open_source(directory, DISK)
    counts = {topic.name.rstrip("0123456789"): len(list(topic.items())) for topic in source.topics}
    assert counts["demo-orders"] == 12
    assert counts["ack"] == 5
    # What was aborted may come back, if nobody knows of it any more.
    assert 0 <= counts["tx"] <= 3
    for topic in source.topics:
        assert all(position.next >= 0 for group in topic.groups for position in group.positions.values())
    shutil.copytree(SAMPLES / "broker_data_dir" / part, directory / part, dirs_exist_ok=True)
