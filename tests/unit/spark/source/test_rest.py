"""What a batch reads that was planned long ago, without Spark: every use sees what is there then."""

import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

import quivermq
from quivermq import Message
from quivermq.errors import Conflict, InvalidRequest
from quivermq.exporting import export
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.options import SourceOptions
from quivermq.spark.source.readers import QuiverBatchReader, message_schema
from quivermq.spark.source.snapshot import SHARES_MAX, Snapshot, is_pinned, rests_of


class View:
    """A plan as Spark keeps it, used as often as one likes."""

    def __init__(self, path: Path, **options: str) -> None:
        given = SourceOptions.parse({"path": str(path), **{"subscribe": "orders"} | options})
        pinned = Snapshot.take(given, given.message_reader()) if is_pinned(given) else None
        self._reader = QuiverBatchReader(given, message_schema(), pinned)
        self.tasks: list[InputPartition] = pickle.loads(pickle.dumps(self._reader.partitions()))

    def values(self) -> list[bytes]:
        batches = [batch for task in self.tasks for batch in self._reader.read(task)]
        return sorted(value for batch in batches for value in batch.column("value").to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def put(path: Path, *values: bytes, topic: str = "orders", **where: object) -> None:
    with quivermq.open(path) as mq:
        mq.queue(topic).put_many([Message(value, **where) for value in values])  # type: ignore[arg-type]


@pytest.mark.parametrize("tasks", ["1", "3"])
def test_every_use_reads_up_to_the_latest(path: Path, tasks: str) -> None:
    with quivermq.open(path) as mq:
        mq.create_topic("orders", partitions=3)
    put(path, b"a", b"b", b"c")
    view = View(path, subscribe="orders,events.*", minpartitions=tasks)
    pinned = View(path, endingoffsets="now")
    assert view.values() == [b"a", b"b", b"c"]
    put(path, b"d", partition=1)
    put(path, b"e", priority="high", partition=2)
    put(path, b"f", topic="events.new")
    assert view.values() == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert pinned.values() == [b"a", b"b", b"c"]


def test_a_view_of_nothing_fills(path: Path) -> None:
    with quivermq.open(path) as mq:
        mq.create_topic("orders", partitions=2)
    view = View(path)
    assert view.values() == []
    put(path, b"a", b"b", b"c")
    assert view.values() == [b"a", b"b", b"c"]


def test_retention_moves_the_beginning_of_a_view(path: Path) -> None:
    with quivermq.open(path) as mq:
        mq.create_topic("orders", segment_messages=1, segments_max=2)
    put(path, b"a")
    view = View(path)
    for value in (b"b", b"c", b"d"):
        put(path, value)
    with quivermq.open(path) as mq:
        mq.compact()
    assert view.values() == [b"c", b"d"]


def test_an_end_that_was_named_stays(path: Path) -> None:
    put(path, b"a", b"b", b"c")
    view = View(path, endingoffsets=json.dumps({"orders": {"0": 2}}))
    put(path, b"d")
    assert view.values() == [b"a", b"b"]


def test_a_topic_that_was_made_again_is_another(path: Path) -> None:
    put(path, b"a")
    view = View(path)
    with quivermq.open(path) as mq:
        mq.delete_topic("orders")
    put(path, b"b")
    with pytest.raises(Conflict, match="made again"):
        view.values()


def test_a_topic_of_which_nothing_was_planned_may_go_but_not_be_another(path: Path) -> None:
    with quivermq.open(path) as mq:
        mq.create_topic("orders")
    view = View(path)
    with quivermq.open(path) as mq:
        mq.delete_topic("orders")
    assert view.values() == []
    put(path, b"b")
    with pytest.raises(
        Conflict, match="orders was deleted and made again: load it, or make the view, anew"
    ):
        view.values()


def test_of_many_tasks_only_a_few_look_for_more(path: Path) -> None:
    put(path, b"a")
    snapshot = Snapshot.take(SourceOptions.parse({"subscribe": "orders"}), DirectoryReader(str(path)))
    looking = [rest for rest in rests_of(snapshot, 20) if rest is not None]
    assert [(rest.share, rest.shares) for rest in looking] == [(n, SHARES_MAX) for n in range(SHARES_MAX)]


def test_moments_mean_what_they_mean_to_an_export(path: Path, tmp_path: Path) -> None:
    stamps = [5, 1, 9, 3, 7, 2, 8, 4, 6, 5]
    with quivermq.open(path) as mq:
        mq.queue("orders").put_many(
            [Message(b"%d" % number, timestamp=ms * 1000) for number, ms in enumerate(stamps)]
        )
    from datetime import UTC, datetime

    start, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (3, 7))
    export("orders", tmp_path / "out.ndjson", path=path, start=start, end=end)
    exported = [
        json.loads(line)["value"].encode() for line in (tmp_path / "out.ndjson").read_text().splitlines()
    ]
    assert exported == [b"0", b"3", b"7", b"8", b"9"]
    assert View(path, startingtimestamp="3", endingtimestamp="7").values() == exported
    each = {which: json.dumps({"orders": {"0": ms}}) for which, ms in (("starting", 3), ("ending", 7))}
    by_partition = {f"{which}offsetsbytimestamp": text for which, text in each.items()}
    assert View(path, **by_partition).values() == exported


def test_partitions_that_were_assigned(path: Path) -> None:
    with quivermq.open(path) as mq:
        mq.create_topic("orders", partitions=2)
    put(path, b"a", partition=0)
    put(path, b"b", partition=1)
    view = View(path, subscribe="", assign='{"orders": [1]}')
    put(path, b"c", partition=1)
    put(path, b"d", partition=0)
    assert view.values() == [b"b", b"c"]
    with pytest.raises(InvalidRequest, match="`assign` names partition 7"):
        View(path, subscribe="", assign='{"orders": [7]}')


def test_nothing_as_young_as_a_moment_may_be_an_error(path: Path) -> None:
    put(path, b"a", timestamp=1000)
    assert View(path, startingtimestamp="5").values() == []
    with pytest.raises(InvalidRequest, match="as young as the option `startingTimestamp`"):
        View(path, startingtimestamp="5", startingoffsetsbytimestampstrategy="error")


def test_ids_and_when_messages_came_in(path: Path) -> None:
    put(path, b"a", dedup_id="x")
    put(path, *[b"%d" % number for number in range(20)])
    view = View(path)
    [batch] = [batch for task in view.tasks for batch in view._reader.read(task)]
    ids = batch.column("dedup_id").to_pylist()
    came = batch.column("append_time").to_pylist()
    assert ids == ["x", *[None] * 20]
    assert came[0] < came[1] == came[20]
