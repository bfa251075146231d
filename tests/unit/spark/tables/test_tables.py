"""The tables without Spark: a directory beside its broker, and the broker itself, tell the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from support.broker import Served, serving
from support.threads import wait_until

from quivermq.clock import SystemClock
from quivermq.engine import engine_of
from quivermq.errors import InvalidRequest
from quivermq.reading.broker import BrokerReader
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.reader import QueueReader
from quivermq.spark.tables import SCHEMAS, TableReader, arrow_schema, parts_of, table_batches

# What only one of the two kinds of place knows.
ONLY_ONE_KNOWS = {"state", "members", "frames", "path"}


def rows(table: str, place: QueueReader, topics: str | None = None) -> list[dict[str, Any]]:
    found = []
    for part in parts_of(table, place, lambda topic: topics is None or topic in topics.split(",")):
        for batch in table_batches(table, place, part):
            assert batch.schema.equals(arrow_schema(table))
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def common(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: each[name] for name in each if name not in ONLY_ONE_KNOWS} for each in found]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as served:
        yield served


@pytest.fixture
def directory(served: Served) -> DirectoryReader:
    return DirectoryReader(str(engine_of(served.engine).path))


@pytest.fixture
def broker(served: Served) -> Iterator[BrokerReader]:
    place = BrokerReader(served.url)
    yield place
    place.close()


@pytest.fixture
def used(served: Served) -> Served:
    """Orders: 8 messages in 2 partitions and 2 lanes; one acked, one in flight, one retrying, one dead."""
    served.engine.create_topic("orders", partitions=2, segment_messages=2)
    orders = served.engine.queue("orders", "billing")
    for number in range(6):
        orders.put(b"%d" % number, key=b"k", headers={"a": b"1"}, partition=0)
    orders.put(b"urgent", partition=0, priority="high")
    orders.put(b"other", partition=1)
    taken = {m.value: m for m in orders.get_many(4)}
    held = list(taken.values())
    held[0].ack()
    held[1].nack(delay=3600, reason="later")
    held[2].reject("broken", error="ValueError: <no>")
    served.engine.queue("quiet", "nobody").put(b"x")
    return served


def test_groups_are_the_same_from_both(
    used: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    found = rows("groups", directory, "orders")
    assert common(found) == common(rows("groups", broker, "orders"))
    assert sum(each["in_flight"] for each in found) == 1
    assert sum(each["retrying"] for each in found) == 1
    assert sum(each["lag"] for each in found) == 4
    assert {(each["partition"], each["priority"]) for each in found} == {
        (0, "normal"),
        (0, "high"),
        (1, "normal"),
    }
    assert all(each["cursor"] is None or each["cursor"] <= each["position"] for each in found)
    told = rows("groups", broker, "orders")[0]
    assert (told["state"], told["members"]) == ("empty", 0)
    assert found[0]["state"] is None


def test_a_group_that_never_was_anywhere_has_no_cursor(
    used: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    used.engine.queue("orders", "new").get(timeout=0)
    used.engine.queue("orders", "new").seek("earliest", partition=1)
    for place in (directory, broker):
        found = [each for each in rows("groups", place, "orders") if each["group"] == "new"]
        cursors = {(each["partition"], each["priority"]): each["cursor"] for each in found}
        assert cursors[1, "normal"] == 0
        assert None in cursors.values()


def test_deliveries_are_the_same_from_both(
    used: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    found = rows("deliveries", directory)
    assert found == rows("deliveries", broker)
    assert sorted(each["state"] for each in found) == ["in_flight", "retrying"]
    for each in found:
        assert (each["deadline"] is None) == (each["state"] == "retrying")
        assert (each["due"] is None) == (each["state"] == "in_flight")
        assert each["attempt"] == 1


def test_a_lease_that_is_over_is_not_in_flight(served: Served, directory: DirectoryReader) -> None:
    orders = served.engine.queue("orders", "billing")
    orders.put(b"x")
    (message,) = orders.get_many(1, lease=0.001)
    # The journal says nothing of its end, which is told by the clock alone: a quick queue is closed sooner.
    wait_until(lambda: SystemClock().now_us() > message._lease.deadline)
    served.engine.close()
    (found,) = rows("deliveries", directory)
    assert (found["state"], found["deadline"]) == ("retrying", None)
    assert found["due"] is not None
    (group,) = rows("groups", directory)
    assert (group["in_flight"], group["retrying"], group["lag"]) == (0, 1, 0)


def test_more_deliveries_than_a_page_has(
    served: Served, directory: DirectoryReader, broker: BrokerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quivermq.reading.broker._PAGE", 7)
    orders = served.engine.queue("orders", "billing")
    orders.put_many([b"x"] * 50)
    orders.get_many(50)
    found = rows("deliveries", broker)
    assert [each["offset"] for each in found] == list(range(50))
    assert found == rows("deliveries", directory)


def test_dead_letters_tell_their_story_in_columns(
    used: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    (found,) = rows("dead_letters", directory)
    assert [found] == rows("dead_letters", broker)
    assert (found["topic"], found["origin_topic"], found["reason"]) == ("orders.dlq", "orders", "broken")
    assert (found["error"], found["group"], found["attempts"]) == ("ValueError: <no>", "billing", 1)
    letter = used.engine.queue("orders").dead_letters()[0]
    assert (found["origin_partition"], found["origin_priority"], found["origin_offset"]) == (
        letter.partition,
        letter.priority,
        letter.offset,
    )
    assert found["value"] == letter.value
    assert {each["key"]: each["value"] for each in found["headers"]} == letter.original_headers
    assert int(found["died_at"].timestamp() * 1e6) == pytest.approx(letter.time, abs=1)
    assert rows("dead_letters", directory, "orders") == [found]
    assert rows("dead_letters", directory, "quiet") == []


def test_a_dead_letter_that_was_delayed_says_so(
    served: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    orders = served.engine.queue("orders")
    put = orders.put(b"late", delay=3600)
    assert put.scheduled_id
    assert orders.deliver_now(put.scheduled_id)
    orders.put(b"plain")
    orders.reject(orders.get_many(2))
    for place in (directory, broker):
        found = rows("dead_letters", place)
        assert [each["scheduled_id"] for each in found] == [put.scheduled_id, None]


def test_dead_letters_that_went_back_are_gone(
    used: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    assert used.engine.queue("orders").redrive() == 1
    assert rows("dead_letters", directory) == rows("dead_letters", broker) == []


def test_a_dead_letter_put_by_hand_tells_what_it_can(served: Served, directory: DirectoryReader) -> None:
    headers = {
        "quiver-dlq-topic": b"secret",
        "quiver-dlq-group": b"billing",
        "quiver-dlq-partition": b"many",
        "quiver-dlq-reason": b"\xff\xfe",
        "quiver-dlq-priority": b"top",
        "mine": b"1",
    }
    served.engine.queue("orders.dlq").put_many(
        [
            b"no headers",
            *([b"x"] * 20),
        ]
    )
    served.engine.queue("orders.dlq").put(b"by hand", headers=headers)
    *_, found = rows("dead_letters", directory)
    assert (found["origin_topic"], found["origin_partition"], found["origin_priority"]) == (
        "orders",
        0,
        "normal",
    )
    assert (found["origin_offset"], found["attempts"], found["error"], found["group"]) == (21, 0, "", "")
    # Its headers are its own, whatever they say.
    assert found["reason"] == ""
    assert {each["key"]: each["value"] for each in found["headers"]} == headers
    assert found["died_at"] == found["timestamp"] == found["origin_timestamp"]


def test_segments_are_the_same_from_both(
    used: Served, directory: DirectoryReader, broker: BrokerReader
) -> None:
    found = rows("segments", directory, "orders")
    assert common(found) == common(rows("segments", broker, "orders"))
    normal = [each for each in found if (each["partition"], each["priority"]) == (0, "normal")]
    assert [(each["base_offset"], each["end_offset"]) for each in normal if each["messages"]] == [
        (0, 2),
        (2, 4),
        (4, 6),
    ]
    assert [each["frames"] for each in normal if each["messages"]] == [2, 2, 2]
    assert normal[0]["sealed"]
    assert not normal[-1]["sealed"]
    for each in found:
        assert Path(each["path"]).stat().st_size == each["bytes"]
        assert not each["messages"] or each["first_timestamp"] <= each["last_timestamp"]


def test_a_table_that_is_none_is_told_which_there_are() -> None:
    with pytest.raises(InvalidRequest, match="messages, groups, deliveries, dead_letters, segments"):
        arrow_schema("letters")
    assert set(SCHEMAS) == {"groups", "deliveries", "dead_letters", "segments"}


@pytest.mark.parametrize("table", SCHEMAS)
def test_spark_reads_a_table_without_rows_once(table: str, directory: DirectoryReader) -> None:
    reader = TableReader(table, directory, lambda _: True)
    [later] = reader.partitions()
    assert list(reader.read(later)) == []
    assert list(reader.read(InputPartition(None))) == []
    assert list(reader.read(None)) == []  # type: ignore[arg-type]
