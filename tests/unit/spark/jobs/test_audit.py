"""The parts of an audit, without Spark: what one task sees, and what several see together."""

from pathlib import Path

import numpy as np
import pytest
from support.damage import flip

import quivermq
from quivermq.disk import SystemDisk
from quivermq.errors import InvalidRequest
from quivermq.frame import Frame, Producer, encode
from quivermq.log import DataDirectory
from quivermq.model.lanes import Lane
from quivermq.reading.directory import DirectoryReader
from quivermq.spark.jobs.audit import audit
from quivermq.spark.jobs.audit_examine import (
    Look,
    Repeat,
    SequenceRun,
    Sequences,
    dead_letter_marks,
    dealt,
    examine_segment,
    hashed,
    id_marks,
    marks_of,
    repeats,
)
from quivermq.spark.jobs.audit_tasks import AuditFinding, bundled, place_of_log, segment_tasks, topics_of
from quivermq.spark.subscription import topic_filter

LANE = Lane("orders", 0, "normal")
NORMAL = "topics/orders/p0/normal"
NOW = 1_700_000_000_000_000


def a_frame(
    offset: int, *, append_us: int = NOW, producer: Producer | None = None, ids: list[str] | None = None
) -> Frame:
    count = len(ids) if ids else 2
    frame = encode([b"x"] * count, timestamp=append_us, dedup_ids=ids, producer=producer or Producer(0, 0))
    return frame.stamped(offset, append_us)


def test_a_sequence_may_be_there_once() -> None:
    sequences = Sequences()
    assert sequences.add(SequenceRun(7, 0, 0, 10, 0))
    assert sequences.add(SequenceRun(7, 0, 10, 5, 10))
    assert sequences.add(SequenceRun(8, 0, 10, 5, 15))
    assert not sequences.add(SequenceRun(7, 0, 10, 5, 20))
    assert sequences.add(SequenceRun(7, 1, 0, 5, 25))
    assert sequences.add(SequenceRun(7, 0, 20, 5, 30))
    assert [(run.producer_id, run.epoch, run.sequence, run.messages) for run in sequences.all_runs()] == [
        (7, 0, 0, 15),
        (8, 0, 10, 5),
        (7, 1, 0, 5),
        (7, 0, 20, 5),
    ]


def test_sequences_begin_anew_after_32_bits() -> None:
    sequences = Sequences()
    assert sequences.add(SequenceRun(7, 0, 2**32 - 3, 5, 0))
    assert sequences.add(SequenceRun(7, 0, 2, 5, 5))
    assert not sequences.add(SequenceRun(7, 0, 2**32 - 1, 2, 10))


def test_frames_that_came_in_before_the_one_in_front_are_noted() -> None:
    look = Look(LANE, "here")
    for offset, append_us in ((0, NOW), (2, NOW + 5), (4, NOW + 1), (6, NOW + 9)):
        look(a_frame(offset, append_us=append_us))
    assert [(found.kind, found.offsets, found.severity) for found in look.findings] == [
        ("append_time", (4, 6), "warning")
    ]
    assert look.late_frames == 1


def test_a_batch_that_came_before_is_noted_with_its_offsets() -> None:
    look = Look(LANE, "here")
    for offset, sequence in ((0, 0), (2, 2), (4, 2)):
        look(a_frame(offset, producer=Producer(9, 3, sequence)))
    (found,) = look.findings
    assert (found.kind, found.offsets) == ("sequence", (4, 6))
    assert "sequences [2, 4) of producer 9, epoch 3" in found.reason


def test_ids_of_small_and_of_large_frames_have_the_same_marks() -> None:
    ids = [f"id-{number}" for number in range(100)]
    small, large = Look(LANE, "", takes_ids=True), Look(LANE, "", takes_ids=True)
    for offset, each in enumerate(ids):
        small(a_frame(offset, ids=[each]))
    large(a_frame(0, ids=ids))
    assert small.messages_with_ids == large.messages_with_ids == 100
    assert np.array_equal(small.marks(), large.marks())
    assert len(np.unique(small.marks()["hash"])) == 100


def test_marks_repeat_only_inside_of_the_window() -> None:
    hashes = hashed(["a", "b", "a", "a"])
    marks = marks_of(hashes, [0, 10, 50, 200], [0, 1, 2, 3], 1, 2)
    blobs = [blob for _, blob in dealt(marks)]
    assert repeats(blobs, 100) == [Repeat((1, "low", 0), (1, "low", 2))]
    assert len(repeats(blobs, None)) == 2
    assert repeats(blobs, 50) == []


def test_marks_that_may_be_the_same_come_to_the_same_share() -> None:
    hashes = hashed([f"{number % 50}" for number in range(200)])
    marks = marks_of(hashes, 0, range(200), 0, 1)
    shares = dict(dealt(marks))
    assert len(shares) > 1
    assert sum(len(repeats([blob], None)) for blob in shares.values()) == 150


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten messages in five frames of two segments, and a group that has read."""
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", segment_messages=6)
        orders = mq.queue("orders", "billing")
        for number in range(5):
            orders.put_many([b"%d" % number] * 2)
        for message in orders.get_many(3):
            message.ack()
    return tmp_path


def test_every_file_of_every_log_is_a_task(data: Path) -> None:
    tasks = list(segment_tasks(SystemDisk(), data, lambda _: True))
    lanes = [(task.lane, task.base_offset, task.next_base) for task in tasks if task.lane]
    assert lanes == [(LANE, 0, 6), (LANE, 6, None)]
    assert [task.ends_journal for task in tasks if "groups" in task.directory] == [True]
    assert list(segment_tasks(SystemDisk(), data, topic_filter("others"))) == []
    assert place_of_log(Path("topics/a.b/p12/high")) == ("a.b", Lane("a.b", 12, "high"))
    assert place_of_log(Path("topics/a/p0/removed")) == ("a", None)
    assert place_of_log(Path("groups/g/a/p0")) == ("a", None)


def test_small_tasks_are_done_together() -> None:
    sizes = [1, 64 << 20, 5, 100 << 20, 3]
    assert bundled(sizes, lambda size: size) == [[100 << 20], [64 << 20], [5, 3, 1]]
    many = bundled([64 << 20] * 40, lambda size: size, cores=2)
    assert [len(bundle) for bundle in many] == [5] * 8
    assert [len(each) for each in bundled([0] * 300, int)] == [256, 44]
    assert bundled([], int) == []


def test_a_sound_segment_has_no_findings(data: Path) -> None:
    for task in segment_tasks(SystemDisk(), data, lambda _: True):
        examined = examine_segment(DirectoryReader(str(data)), task, deep=True)
        assert examined.findings == []
        assert examined.segments == 1
        if task.lane is not None:
            assert (examined.messages, examined.frames) in ((6, 3), (4, 2))


@pytest.mark.damages
def test_damage_is_told_with_file_and_offsets_and_the_rest_is_seen(data: Path) -> None:
    path = data / NORMAL / f"{0:020d}.log"
    frame_bytes = path.stat().st_size // 3
    flip(path, frame_bytes + 100)
    task = next(task for task in segment_tasks(SystemDisk(), data, lambda _: True) if task.lane)
    examined = examine_segment(DirectoryReader(str(data)), task, deep=False)
    (found,) = examined.findings
    assert (found.kind, found.where, found.position, found.offsets) == (
        "damage",
        str(path),
        frame_bytes,
        (2, 4),
    )
    assert (examined.frames, examined.messages) == (2, 4)


@pytest.mark.damages
def test_a_journal_that_nobody_understands_is_a_finding(data: Path) -> None:
    with DataDirectory(data) as directory:
        directory.log("groups/billing/orders/p0").append(b"c" + b"\xff" * 8)
    task = next(task for task in segment_tasks(SystemDisk(), data, lambda _: True) if task.ends_journal)
    (found,) = examine_segment(DirectoryReader(str(data)), task, deep=False).findings
    assert (found.kind, found.severity) == ("state", "error")
    assert "groups/billing/orders/p0" in found.where


def test_a_segment_that_is_gone_is_no_finding(data: Path) -> None:
    task = next(iter(segment_tasks(SystemDisk(), data, lambda _: True)))._replace(base_offset=99)
    assert examine_segment(DirectoryReader(str(data)), task, deep=False).findings == []


def test_topics_that_cannot_be_understood_are_findings(data: Path) -> None:
    (data / "topics" / "orders" / "p7").mkdir()
    (data / "topics" / "broken").mkdir()
    (data / "topics" / "broken" / "topic.json").write_text("{")
    windows, findings = topics_of(SystemDisk(), data)
    assert windows == {"orders": 300_000_000}
    assert [(each.kind, Path(each.where).name) for each in findings] == [
        ("state", "topic.json"),
        ("partition", "p7"),
    ]


def test_dead_letters_that_died_once_have_different_marks(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        for group in ("billing", "shipping"):
            orders = mq.queue("orders", group)
            if group == "billing":
                orders.put_many([b"x"] * 3)
            for message in orders.get_many(3):
                message.reject("broken")
        mq.queue("orders.dlq").put(b"by hand")
    lane = Lane("orders.dlq", 0, "normal")
    place = DirectoryReader(str(tmp_path))
    marks = dead_letter_marks(place, lane, 0, 7)
    assert len(marks) == len(np.unique(marks["hash"])) == 6
    assert len(id_marks(place, lane, 0, 7)) == 0


def test_a_kind_that_is_none_cannot_be_ignored(data: Path) -> None:
    with pytest.raises(InvalidRequest, match="rumour is no kind of finding"):
        audit(str(data), ignore=["rumour"])


def test_a_dry_run_counts_and_needs_no_spark(data: Path) -> None:
    summary = audit(str(data), dry_run=True)
    assert (summary.logs, summary.segments, summary.is_dry_run) == (2, 3, True)
    assert summary.bytes == sum(path.stat().st_size for path in data.rglob("*.log"))


def test_an_id_that_comes_again_is_only_a_warning() -> None:
    """The window may have been altered since, so that nothing is wrong with the store."""
    found = AuditFinding("dedup_id", "orders, partition 0, priority normal", (1, 2), "again")
    assert found.severity == "warning"
