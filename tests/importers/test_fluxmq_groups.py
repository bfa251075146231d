"""Groups of FluxMQ: snapshots, operations replayed over them, and what the broker tells."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import flux_files as flux
from support.sources import DISK, damage, only, problems

from quivermq.importers import import_queue
from quivermq.importers.fluxmq import open_source
from quivermq.importers.model import ImportSource, Position, SourceTopic

DELIVER, ACK, ACK_BATCH, NACK, CLAIM, CLAIM_BATCH, ADVANCE_FLOOR, SET_CURSOR = range(1, 9)


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source")
    flux.write_segment(path / "queues" / "q", 0, flux.batch(0, flux.values(0, 30)))
    return path


def queue(path: Path) -> Path:
    return path / "queues" / "q"


def opened(path: Path) -> tuple[SourceTopic, ImportSource]:
    source = open_source(path, DISK)
    [topic] = source.topics
    return topic, source


def position(path: Path, group: str = "g") -> Position:
    topic, source = opened(path)
    [found] = [each for each in topic.groups if each.name == group]
    assert source.findings.damages == 0
    assert found.positions.keys() == {0}
    return found.positions[0]


def replayed(path: Path, *operations: Mapping[str, Any]) -> Position:
    """What a group with a snapshot at 4, of which 1 and 3 are pending, is after these operations."""
    directory = flux.write_state(queue(path), "g", 4, {1: 1, 3: 2})
    flux.write_operations(directory, *operations)
    return position(path)


def test_snapshots_alone(source_path: Path) -> None:
    assert replayed(source_path) == Position(4, {1: 1, 3: 2})


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([{"t": DELIVER, "o": 4, "c": "c1"}], Position(5, {1: 1, 3: 2, 4: 1})),
        ([{"t": DELIVER, "o": 9, "c": "c1"}], Position(10, {1: 1, 3: 2, 9: 1})),
        # An offset of 0 is left out.
        ([{"t": DELIVER, "c": "c1"}], Position(4, {0: 1, 1: 1, 3: 2})),
        ([{"t": DELIVER, "o": 3, "c": "c1"}], Position(4, {1: 1, 3: 1})),
        ([{"t": ACK, "o": 1}], Position(4, {3: 2})),
        ([{"t": ACK}], Position(4, {1: 1, 3: 2})),
        ([{"t": ACK, "o": 7}], Position(4, {1: 1, 3: 2})),
        ([{"t": ACK_BATCH, "os": [1, 3, 20]}], Position(4)),
        ([{"t": ACK_BATCH}], Position(4, {1: 1, 3: 2})),
        ([{"t": NACK, "o": 3}], Position(4, {1: 1, 3: 3})),
        ([{"t": NACK, "o": 2}], Position(4, {1: 1, 3: 2})),
        ([{"t": CLAIM, "o": 1, "c": "c2"}], Position(4, {1: 2, 3: 2})),
        ([{"t": CLAIM_BATCH, "os": [1, 3, 5], "c": "c2"}], Position(4, {1: 2, 3: 3})),
        ([{"t": ADVANCE_FLOOR, "o": 3}], Position(4, {1: 1, 3: 2})),
        ([{"t": SET_CURSOR, "o": 20}], Position(20, {1: 1, 3: 2})),
        # What lies behind the cursor is delivered anyway.
        ([{"t": SET_CURSOR, "o": 2}], Position(2, {1: 1})),
        ([{"t": SET_CURSOR}], Position(0)),
        (
            [
                {"t": DELIVER, "o": 4, "c": "c1"},
                {"t": DELIVER, "o": 5, "c": "c1"},
                {"t": NACK, "o": 4},
                {"t": CLAIM, "o": 4, "c": "c2"},
                {"t": ACK_BATCH, "os": [1, 3, 5]},
            ],
            Position(6, {4: 3}),
        ),
    ],
)
def test_operations_are_replayed_over_the_snapshots(
    source_path: Path, operations: list[Mapping[str, Any]], after: Position
) -> None:
    assert replayed(source_path, *operations) == after


def test_operations_without_a_snapshot(source_path: Path) -> None:
    directory = queue(source_path) / "consumers" / "g"
    flux.write_operations(directory, {"t": DELIVER, "c": "c"}, {"t": DELIVER, "o": 1, "c": "c"}, {"t": ACK})
    assert position(source_path) == Position(2, {1: 1})


def test_a_group_that_has_done_nothing_is_at_the_beginning(source_path: Path) -> None:
    flux.write_json(queue(source_path) / "consumers/g/state.json", {"version": 1, "state": None})
    assert position(source_path) == Position(0)


def test_any_number_of_shards(source_path: Path) -> None:
    flux.write_state(queue(source_path), "g", 30, dict.fromkeys(range(25), 2), shards=13)
    assert position(source_path) == Position(30, dict.fromkeys(range(25), 2))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"t":2,"o":1\n', "Expecting"),
        (b"garbage\n", "Expecting"),
        (b"[]\n", "is no JSON object"),
        (b'{"t":99,"ts":1}\n', "there is no operation 99"),
        (b'{"ts":1}\n', "there is no operation None"),
        (b'{"t":2,"o":-1}\n', "-1 is no offset"),
        (b'{"t":2,"o":"1"}\n', "'1' is no offset"),
        (b'{"t":2,"o":18446744073709551616}\n', "18446744073709551616 is no offset"),
        (b'{"t":3,"os":7}\n', "its offsets are no list"),
        (b'{"t":3,"os":[1,null]}\n', "None is no offset"),
        (b"[" * 5000 + b"\n", ""),
        (b"\xff\xfe\n", "decode"),
    ],
)
@pytest.mark.parametrize("place", ["middle", "end"])
def test_an_operation_that_makes_no_sense_is_told_and_the_others_are_replayed(
    source_path: Path, line: bytes, problem: str, place: str
) -> None:
    directory = flux.write_state(queue(source_path), "g", 4, {1: 1, 3: 2})
    first, last = b'{"t":1,"o":4,"c":"c","ts":1}\n', b'{"t":2,"o":3,"ts":1}\n'
    lines = [first, line, last] if place == "middle" else [first, last, line]
    (directory / "ops.log").write_bytes(b"".join(lines))
    topic, source = opened(source_path)
    [group] = topic.groups
    assert group.positions[0] == Position(5, {1: 1, 4: 1})
    finding = only(source.findings)
    before = len(first) if place == "middle" else len(first) + len(last)
    assert (finding.path, finding.position, finding.length) == (directory / "ops.log", before, len(line))
    assert finding.problem.startswith("an operation was not replayed: ")
    assert problem in finding.problem


def test_the_last_operation_may_be_torn(source_path: Path) -> None:
    directory = flux.write_state(queue(source_path), "g", 4, {1: 1, 3: 2})
    whole = b'{"t":2,"o":3,"ts":1}\n'
    for size in range(1, len(whole) - 1):
        (directory / "ops.log").write_bytes(whole + whole[:size])
        topic, source = opened(source_path)
        assert topic.groups[0].positions[0] == Position(4, {1: 1})
        assert damage(source.findings) == [("ops.log", len(whole), size)]


@pytest.mark.parametrize(
    ("name", "text", "after"),
    [
        ("state.json", "{", Position(0)),
        ("state.json", "[]", Position(0)),
        ("state.json", '{"state":7}', Position(0)),
        ("state.json", '{"state":{"Cursor":-1}}', Position(0)),
        ("pel_3.json", '{"entries":{"x":{"n":1}}}', Position(4, {1: 1, 3: 1})),
        ("pel_3.json", '{"entries":{"3":7}}', Position(4, {1: 1, 3: 1})),
        ("pel_3.json", '{"entries":{"3":{"n":-1}}}', Position(4, {1: 1, 3: 1})),
        ("pel_3.json", '{"entries":[]}', Position(4, {1: 1, 3: 1})),
        ("pel_3.json", '{"entries":{"99999999999999999999":{"n":1}}}', Position(4, {1: 1, 3: 1})),
        ("pel_3.json", "", Position(4, {1: 1, 3: 1})),
    ],
)
def test_a_snapshot_that_makes_no_sense_is_told_and_the_rest_counts(
    source_path: Path, name: str, text: str, after: Position
) -> None:
    directory = flux.write_state(queue(source_path), "g", 4, {1: 1, 3: 2})
    (directory / name).write_text(text)
    topic, source = opened(source_path)
    [group] = topic.groups
    assert group.positions[0] == after
    assert [each[0] for each in damage(source.findings)] == [name]


def test_what_a_lost_snapshot_may_have_had_pending_is_taken_for_pending(source_path: Path) -> None:
    directory = flux.write_state(queue(source_path), "g", 25, {6: 4, 9: 2, 20: 3}, ack_floor=4)
    flux.write_operations(directory, {"t": ACK, "o": 14}, {"t": DELIVER, "o": 30, "c": "c"})
    (directory / "pel_6.json").write_text("torn")
    topic, source = opened(source_path)
    [group] = topic.groups
    # All of the shard between the floor and the cursor, but for what was acknowledged since.
    assert group.positions[0] == Position(31, {6: 1, 9: 2, 20: 3, 22: 1, 30: 1})
    assert source.findings.damages == 1


def told_group(**state: Any) -> dict[str, Any]:
    return {"version": 2, "state": {"ID": "g", "QueueName": "q", "Mode": "queue", **state}, "saved_at": 1}


PEL = {"c1": [{"Offset": 2, "ConsumerID": "c1", "DeliveryCount": 3}], "c2": []}


def test_what_the_broker_tells_counts_where_there_is_nothing_else(source_path: Path) -> None:
    document = told_group(Cursor={"Cursor": 7, "Committed": 2}, PEL=PEL)
    flux.write_json(source_path / "groups/q/g.json", document)
    assert position(source_path) == Position(7, {2: 3})


def test_the_group_s_own_files_count_more_than_what_the_broker_tells(source_path: Path) -> None:
    flux.write_state(queue(source_path), "g", 9, {8: 1})
    flux.write_json(source_path / "groups/q/g.json", told_group(Cursor={"Cursor": 7}, PEL=PEL))
    assert position(source_path) == Position(9, {8: 1})


@pytest.mark.parametrize(("auto_commit", "next_offset"), [(True, 7), (None, 7), (False, 2)])
def test_a_stream_group_is_where_the_broker_says(
    source_path: Path, auto_commit: bool | None, next_offset: int
) -> None:
    flux.write_state(queue(source_path), "g", 9, {8: 1})
    extra = {} if auto_commit is None else {"AutoCommit": auto_commit}
    document = told_group(Mode="stream", Cursor={"Cursor": 7, "Committed": 2}, PEL=PEL, **extra)
    flux.write_json(source_path / "groups/q/g.json", document)
    assert position(source_path) == Position(next_offset)


def test_groups_of_other_queues_are_not_taken(source_path: Path) -> None:
    flux.write_json(source_path / "groups/other/g.json", told_group(QueueName="other"))
    topic, _ = opened(source_path)
    assert topic.groups == []


def test_groups_named_after_a_pattern_lie_in_directories_below(source_path: Path) -> None:
    flux.write_state(queue(source_path), "g@eu/#", 3, {1: 1})
    flux.write_json(
        source_path / "groups/q/g@eu/#.json", told_group(ID="g@eu/#", Pattern="eu/#", Cursor={"Cursor": 1})
    )
    topic, source = opened(source_path)
    [group] = topic.groups
    assert (group.name, group.positions[0]) == ("g@eu/#", Position(3, {1: 1}))
    assert problems(source.findings, is_damage=False) == [
        "the group reads only 'eu/#' of its queue; here it will get everything"
    ]


@pytest.mark.parametrize(
    "document", [{}, {"state": 7}, told_group(Cursor={"Cursor": -1}), told_group(PEL={"c": [7]}), []]
)
def test_a_group_that_the_broker_tells_badly_is_told(source_path: Path, document: Any) -> None:
    path = flux.write_json(source_path / "groups/q/g.json", document)
    topic, source = opened(source_path)
    assert topic.groups == []
    assert only(source.findings).path == path
    assert source.findings.damages == 1


def test_directories_linked_in_a_circle_are_read_to_an_end(source_path: Path) -> None:
    directory = flux.write_state(queue(source_path), "g", 4, {})
    (directory / "loop").symlink_to(directory.parent, target_is_directory=True)
    topic, _ = opened(source_path)
    assert topic.groups[0].name == "g"
    assert len(topic.groups) < 50


def test_groups_are_read_anew_with_the_messages(source_path: Path) -> None:
    topic, _ = opened(source_path)
    assert topic.groups == []
    flux.write_state(queue(source_path), "g", 9, {})
    assert topic.groups == []
    assert len(list(topic.items())) == 30
    assert [group.name for group in topic.groups] == ["g"]


def test_what_is_wrong_with_a_group_is_told_once(source_path: Path) -> None:
    directory = flux.write_state(queue(source_path), "g", 4, {1: 1})
    (directory / "ops.log").write_bytes(b"garbage\n")
    summary = import_queue("fluxmq", source_path, None, topic="t", dry_run=True)
    assert [(finding.path.name, finding.position) for finding in summary.findings] == [("ops.log", 0)]
    assert summary.damages == 1
