"""What a GoQueue broker keeps beside its logs: delays, transactions, positions, dead letters."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from support import go_files as go
from support.sources import DISK, offsets, only, problems, topic_named

from quivermq.importers import import_queue
from quivermq.importers.goqueue import open_source
from quivermq.importers.model import Death, ImportSource, Item, Position, SourceTopic, text_identity

PENDING, DELIVERED, CANCELLED, EXPIRED = range(4)
DUE_NS = go.BASE_NS + 3_600_000_000_001


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source")
    for partition in range(2):
        go.write_segment(path / "logs/t" / str(partition), 0, go.values(0, 5))
    return path


def opened(path: Path, name: str = "t") -> tuple[SourceTopic, ImportSource]:
    source = open_source(path, DISK)
    return topic_named(source.topics, name), source


def read(path: Path) -> tuple[dict[tuple[int, int], Item], ImportSource]:
    topic, source = opened(path)
    return {(item.partition, item.identity): item for item in topic.items()}, source


def delay_path(path: Path) -> Path:
    return path / "delay/delays/t/delay.index"


# Delays.


def test_delays_by_their_states(source_path: Path) -> None:
    entries = [
        (0, 1, DUE_NS, PENDING),
        (0, 2, DUE_NS, DELIVERED),
        (1, 3, DUE_NS, CANCELLED),
        (1, 1, DUE_NS + 1000, PENDING),
        (0, 4, DUE_NS, EXPIRED),
    ]
    go.write_bytes(delay_path(source_path), go.delay_index(entries))
    items, source = read(source_path)
    assert {place: item.deliver_at_us for place, item in items.items() if item.deliver_at_us} == {
        # Never too early: a part of a microsecond is a whole one.
        (0, 1): DUE_NS // 1000 + 1,
        (1, 1): DUE_NS // 1000 + 2,
    }
    assert {place for place, item in items.items() if item.is_consumed} == {(1, 3), (0, 4)}
    assert len(items) == 10
    assert source.findings.count == 0


def test_what_was_written_last_of_a_delay_counts(source_path: Path) -> None:
    entries = [
        (0, 1, DUE_NS, PENDING),
        (0, 1, DUE_NS, CANCELLED),
        (0, 2, DUE_NS, CANCELLED),
        (0, 2, DUE_NS, PENDING),
        (0, 3, DUE_NS, PENDING),
        (0, 3, DUE_NS, DELIVERED),
    ]
    go.write_bytes(delay_path(source_path), go.delay_index(entries))
    items, _ = read(source_path)
    assert [place for place, item in items.items() if item.deliver_at_us] == [(0, 2)]
    assert [place for place, item in items.items() if item.is_consumed] == [(0, 1)]


def test_many_delays(source_path: Path) -> None:
    go.write_segment(source_path / "logs/t/0", 0, go.values(0, 5000))
    entries = [(0, offset, DUE_NS, PENDING) for offset in range(5000)]
    go.write_bytes(delay_path(source_path), go.delay_index(entries))
    items, source = read(source_path)
    assert sum(item.deliver_at_us is not None for item in items.values()) == 5000
    assert source.findings.count == 0


def test_a_message_that_waits_and_is_in_no_log_is_told(source_path: Path) -> None:
    entries = [(0, 99, DUE_NS, PENDING), (7, 0, DUE_NS, PENDING), (0, 98, DUE_NS, DELIVERED)]
    go.write_bytes(delay_path(source_path), go.delay_index(entries))
    _, source = read(source_path)
    finding = only(source.findings)
    assert finding.path == delay_path(source_path)
    assert finding.problem == (
        "messages wait in it that are in no log: 2, the first is offset 99 of partition 0"
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"GQ", "it is no delay index, so no message waits"),
        (b"XXXX" + bytes(12), "it is no delay index, so no message waits"),
        (b"GQDL\0\2" + bytes(10), "it has the version 2, known is 1; so no message waits"),
    ],
)
def test_a_delay_index_that_is_none_is_told(source_path: Path, data: bytes, problem: str) -> None:
    go.write_bytes(delay_path(source_path), data)
    items, source = read(source_path)
    assert len(items) == 10
    assert only(source.findings).problem == problem
    assert source.findings.damages == 1


def test_a_delay_index_that_is_cut_gives_its_whole_entries(source_path: Path) -> None:
    whole = go.delay_index([(0, offset, DUE_NS, PENDING) for offset in range(4)])
    for size in range(17, len(whole)):
        go.write_bytes(delay_path(source_path), whole[:size])
        items, source = read(source_path)
        held, rest = divmod(size - 16, 32)
        assert sum(item.deliver_at_us is not None for item in items.values()) == held
        finding = only(source.findings)
        assert finding.problem == f"it says that it has 4 entries, and has {held} whole ones"
        assert (finding.position, finding.length) == (size - rest, rest)


def test_an_entry_that_was_not_counted_any_more_counts(source_path: Path) -> None:
    data = go.delay_index([(0, 0, DUE_NS, PENDING), (0, 1, DUE_NS, PENDING)], count=1)
    go.write_bytes(delay_path(source_path), data)
    items, source = read(source_path)
    assert [place for place, item in items.items() if item.deliver_at_us] == [(0, 0), (0, 1)]
    assert problems(source.findings, is_damage=False) == [
        "it says that it has 1 entries, and has 2, all of which count"
    ]


@pytest.mark.parametrize("count", [2**64 - 1, 10**9])
def test_a_count_beyond_all_is_not_believed(source_path: Path, count: int) -> None:
    go.write_bytes(delay_path(source_path), go.delay_index([(0, 0, DUE_NS, PENDING)], count=count))
    items, source = read(source_path)
    assert items[0, 0].deliver_at_us is not None
    assert source.findings.damages == 1


@pytest.mark.parametrize(
    "entry", [(0, -1, DUE_NS, PENDING), (-1, 0, DUE_NS, PENDING), (0, 1, DUE_NS, 4), (0, 1, DUE_NS, -1)]
)
def test_an_entry_that_makes_no_sense_is_told_by_its_place(
    source_path: Path, entry: tuple[int, int, int, int]
) -> None:
    data = go.delay_index([(0, 0, DUE_NS, PENDING), entry, (0, 2, DUE_NS, PENDING)])
    go.write_bytes(delay_path(source_path), data)
    items, source = read(source_path)
    assert [place for place, item in items.items() if item.deliver_at_us] == [(0, 0), (0, 2)]
    finding = only(source.findings)
    assert (finding.position, finding.length, finding.is_damage) == (48, 32, True)


def test_an_empty_delay_index_is_fine(source_path: Path) -> None:
    go.write_bytes(delay_path(source_path), b"")
    items, source = read(source_path)
    assert len(items) == 10
    assert source.findings.count == 0


# Transactions.


def publish(transaction: str, offset: int, partition: int = 0, producer: str = "P") -> dict[str, Any]:
    data = {
        "transactionalID": producer,
        "transactionId": transaction,
        "topic": "t",
        "partition": partition,
        "offset": offset,
        "producerId": 1,
        "epoch": 0,
    }
    return {"type": "txn_publish", "timestamp": "2026-01-01T00:00:00Z", "data": data}


def step(kind: str, producer: str = "P", transaction: str | None = None) -> dict[str, Any]:
    data: dict[str, Any] = {"transactionalID": producer}
    if transaction is not None:
        data["transactionId"] = transaction
    return {"type": kind, "timestamp": "2026-01-01T00:00:00Z", "data": data}


def live(path: Path) -> tuple[list[tuple[int, int]], ImportSource]:
    items, source = read(path)
    return list(items), source


def all_but(*gone: tuple[int, int]) -> list[tuple[int, int]]:
    return [(p, o) for p in range(2) for o in range(5) if (p, o) not in gone]


def test_aborted_messages_are_left_out(source_path: Path) -> None:
    aborted = {"t": {"0": [1, 3], "1": [0]}, "other": {"0": [2]}, "empty": None}
    go.write_json(source_path / "transactions/aborted_offsets.json", {"version": 1, "aborted": aborted})
    found, source = live(source_path)
    assert found == all_but((0, 1), (0, 3), (1, 0))
    assert source.findings.count == 0


def test_the_log_of_transactions_tells_how_they_ended(source_path: Path) -> None:
    lines = [
        step("init_producer"),
        step("begin_txn", transaction="one"),
        publish("one", 0),
        publish("one", 1),
        step("prepare_commit"),
        step("complete_commit"),
        step("begin_txn", transaction="two"),
        publish("two", 2),
        step("begin_txn", "Q", "three"),
        publish("three", 3, producer="Q"),
        step("prepare_abort"),
        step("complete_abort"),
        step("heartbeat"),
        publish("three", 1, partition=1, producer="Q"),
    ]
    go.write_lines(source_path / "transactions/transactions.log", lines)
    found, source = live(source_path)
    # The second was aborted, and the third had not ended.
    assert found == all_but((0, 2), (0, 3), (1, 1))
    assert problems(source.findings, is_damage=False) == [
        "of transactions that were not ended, messages are left out: 2"
    ]
    assert source.findings.damages == 0


def test_a_transaction_that_began_before_the_log_did_is_known_from_the_snapshot(source_path: Path) -> None:
    producers = {"P": {"state": 1, "currentTransactionId": "one"}, "Q": {"state": 0}, "R": None}
    go.write_json(source_path / "transactions/producer_state.json", {"transactionalIds": producers})
    lines = [publish("one", 0), step("complete_abort"), step("complete_abort", "Q")]
    go.write_lines(source_path / "transactions/transactions.log", lines)
    found, _ = live(source_path)
    assert found == all_but((0, 0))


@pytest.mark.parametrize(
    "line",
    [
        b"torn",
        b"[]\n",
        b'{"type":"txn_publish"}\n',
        b'{"type":"txn_publish","data":{"partition":-1,"offset":1}}\n',
        b'{"type":"txn_publish","data":{"partition":0,"offset":"1"}}\n',
    ],
)
def test_a_line_that_makes_no_sense_is_told_and_the_others_count(source_path: Path, line: bytes) -> None:
    path = go.write_lines(source_path / "transactions/transactions.log", [publish("one", 0)])
    first = path.read_bytes()
    last = json.dumps(step("complete_abort")).encode() + b"\n"
    path.write_bytes(first + line.rstrip() + b"\n" + last)
    found, source = live(source_path)
    assert found == all_but((0, 0))
    finding = only(source.findings)
    assert (finding.path, finding.position, finding.length) == (path, len(first), len(line.rstrip()) + 1)
    assert finding.is_damage


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"aborted": 7},
        {"aborted": {"t": 7}},
        {"aborted": {"t": {"x": [1]}}},
        {"aborted": {"t": {"0": [-1]}}},
    ],
)
def test_a_list_of_what_was_aborted_that_makes_no_sense_is_told(source_path: Path, document: Any) -> None:
    path = go.write_json(source_path / "transactions/aborted_offsets.json", document)
    found, source = live(source_path)
    assert found == all_but()
    assert only(source.findings).path == path
    assert source.findings.damages == 1


def test_what_was_aborted_is_not_asked_for_where_it_is_known(source_path: Path) -> None:
    go.write_segment(source_path / "logs/t/0", 0, [*go.values(0, 5), go.control(5, "x", is_commit=False)])
    _, source = live(source_path)
    assert len(problems(source.findings, is_damage=False)) == 1
    (source_path / "transactions").mkdir()
    _, source = live(source_path)
    assert source.findings.count == 0


# Groups.


def committed(group: str, topic: str, partitions: dict[str, Any]) -> dict[str, Any]:
    told = {"topic": topic, "partitions": {name: {"offset": offset} for name, offset in partitions.items()}}
    return {"group_id": group, "topics": {topic: told}, "generation": 1}


def test_groups_are_where_they_committed(source_path: Path) -> None:
    go.write_json(source_path / "offsets/a/offsets.json", committed("a", "t", {"0": 3, "1": 0}))
    go.write_json(source_path / "offsets/b/offsets.json", committed("", "t", {"1": 5}))
    (source_path / "offsets/empty").mkdir()
    topic, source = opened(source_path)
    assert {group.name: group.positions for group in topic.groups} == {
        "a": {0: Position(3), 1: Position(0)},
        "b": {1: Position(5)},
    }
    assert source.findings.count == 0


def test_what_waits_is_not_finished_by_a_group_that_passed_over_it(source_path: Path) -> None:
    go.write_json(source_path / "offsets/a/offsets.json", committed("a", "t", {"0": 3}))
    entries = [
        (0, 1, DUE_NS, PENDING),
        (0, 2, DUE_NS, DELIVERED),
        (0, 4, DUE_NS, PENDING),
        (1, 0, DUE_NS, 0),
    ]
    go.write_bytes(delay_path(source_path), go.delay_index(entries))
    topic, _ = opened(source_path)
    [group] = topic.groups
    assert group.positions == {0: Position(3, {1: 0})}


@pytest.mark.parametrize("offset", [-1, "3", None, 2**63, 1.5])
def test_a_position_that_makes_no_sense_is_told_and_the_others_count(
    source_path: Path, offset: Any
) -> None:
    path = go.write_json(source_path / "offsets/a/offsets.json", committed("a", "t", {"0": offset, "1": 2}))
    topic, source = opened(source_path)
    [group] = topic.groups
    assert group.positions == {1: Position(2)}
    assert only(source.findings).path == path
    assert source.findings.damages == 1


def test_positions_in_topics_that_are_not_imported_are_told(source_path: Path) -> None:
    go.write_segment(source_path / "logs/t.dlq/0", 0, [])
    go.write_json(source_path / "offsets/a/offsets.json", committed("a", "gone", {"0": 3}))
    go.write_json(source_path / "offsets/b/offsets.json", committed("b", "t.dlq", {"0": 3}))
    _, source = opened(source_path)
    assert problems(source.findings, is_damage=False) == [
        "positions of a in gone are not imported: it is not there",
        "positions of b in t.dlq are not imported: it holds dead letters",
    ]


def test_offsets_that_cannot_be_read_are_told(source_path: Path) -> None:
    path = go.write_bytes(source_path / "offsets/a/offsets.json", b'{"group_id"')
    topic, source = opened(source_path)
    assert topic.groups == []
    assert only(source.findings).path == path


# Dead letters.


def letter(**told: Any) -> bytes:
    whole = {
        "original_topic": "t",
        "original_partition": 1,
        "original_offset": 4,
        "original_timestamp": "2026-01-01T00:00:00.123456789Z",
        "original_key": b64encode(b"k").decode(),
        "original_value": b64encode(b"\xffv").decode(),
        "delivery_attempts": 3,
        "first_delivery": "2026-01-01T00:00:00Z",
        "last_group": "g",
        "reason": "MAX_RETRIES_EXCEEDED",
        "last_error": "boom",
        "dlq_time": "2026-01-01T00:00:01Z",
    }
    return json.dumps(whole | told).encode()


def letters(path: Path, *values: bytes) -> tuple[list[Item], ImportSource]:
    go.write_segment(
        path / "logs/t.dlq/1", 0, [go.record(n, value, b"k") for n, value in enumerate(values)]
    )
    topic, source = opened(path)
    return list(topic.dead_letters()), source


def test_a_dead_letter_is_what_it_tells_of(source_path: Path) -> None:
    [item], source = letters(source_path, letter())
    assert (item.identity, item.partition, item.key, item.value) == (0, 1, b"k", b"\xffv")
    assert item.timestamp_us == 1_767_225_600_123_456
    assert item.dead == Death(
        original_id="4",
        partition=1,
        offset=4,
        attempts=3,
        reason="MAX_RETRIES_EXCEEDED",
        error="boom",
        group="g",
        time_us=1_767_225_601_000_000,
    )
    assert [topic.name for topic in source.topics] == ["t"]
    assert source.findings.count == 0


def test_what_a_letter_does_not_tell_is_not_known(source_path: Path) -> None:
    [item], source = letters(
        source_path,
        letter(
            original_key=None,
            original_value=None,
            original_offset=-1,
            original_partition="x",
            original_timestamp="0001-01-01T00:00:00Z",
            delivery_attempts=None,
            last_group="",
            reason=7,
            last_error=None,
            dlq_time="soon",
        ),
    )
    assert (item.key, item.value, item.timestamp_us) == (None, b"", go.BASE_NS // 1000)
    assert item.dead == Death()
    assert source.findings.count == 0


def test_half_a_character_in_a_text_is_written_out(source_path: Path) -> None:
    [item], _ = letters(source_path, letter(last_error="\ud800!"))
    assert item.dead is not None
    assert item.dead.error == "\\ud800!"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"just text",
        b"[]",
        b"{}",
        b'{"original_topic":7}',
        letter(original_value="%%"),
        letter(original_key=7),
    ],
)
def test_a_message_that_is_no_letter_is_kept_as_it_is(source_path: Path, value: bytes) -> None:
    [item], source = letters(source_path, value)
    assert (item.key, item.value, item.dead) == (b"k", value, Death())
    finding = only(source.findings)
    assert finding.problem.startswith("offset 0 is kept as it is: it is no dead letter of GoQueue, ")
    assert finding.is_damage is False


def test_letters_of_a_topic_that_is_gone_and_letters_of_letters(source_path: Path) -> None:
    go.write_segment(source_path / "logs/gone.dlq/0", 0, [go.record(0, letter())])
    go.write_segment(source_path / "logs/gone.dlq.dlq/0", 0, [go.record(0, letter())])
    topic, source = opened(source_path, "gone")
    assert [each.name for each in source.topics] == ["gone", "t"]
    assert list(topic.items()) == []
    assert offsets(list(topic.dead_letters())) == [0, text_identity("gone.dlq.dlq\n0")]


# Partitions.


def test_partitions_by_their_numbers(source_path: Path) -> None:
    go.write_segment(source_path / "logs/t/10", 0, go.values(0, 1))
    (source_path / "logs/t/5000000").mkdir()
    (source_path / "logs/t/01").mkdir()
    (source_path / "logs/t/0.compacting").mkdir()
    topic, source = opened(source_path)
    assert topic.partitions == 11
    assert [item.partition for item in topic.items()] == [0] * 5 + [1] * 5 + [10]
    assert sorted(each.path.name for each in source.findings.kept) == ["0.compacting", "01", "5000000"]
    assert source.findings.damages == 0


def test_a_partition_that_was_being_compacted_is_read_as_it_was_before(source_path: Path) -> None:
    (source_path / "logs/t/1").rename(source_path / "logs/t/1.old")
    go.write_segment(source_path / "logs/t/0.old", 0, go.values(0, 99))
    topic, source = opened(source_path)
    assert [item.partition for item in topic.items()] == [0] * 5 + [1] * 5
    assert [(each.path.name, each.is_damage) for each in source.findings.kept] == [("1.old", False)]


def test_a_topic_without_partitions_is_empty(source_path: Path) -> None:
    (source_path / "logs/new").mkdir()
    topic, _ = opened(source_path, "new")
    assert (topic.partitions, list(topic.items()), list(topic.dead_letters())) == (1, [], [])


# Told once.


def test_a_group_that_has_committed_nothing_in_a_topic_has_finished_nothing(source_path: Path) -> None:
    offsets_of = {
        "done": {"0": {"offset": 5}, "1": {"offset": 5}},
        "new": {},
    }
    for group, partitions in offsets_of.items():
        document = {"group_id": group, "topics": {"t": {"topic": "t", "partitions": partitions}}}
        go.write_bytes(source_path / "offsets" / group / "offsets.json", json.dumps(document).encode())
    [told] = import_queue("goqueue", source_path, None, dry_run=True).topics
    assert (told.imported, told.consumed, told.groups) == (10, 0, ["done", "new"])


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_odd_about_delays_is_told_once(source_path: Path, strict: bool) -> None:
    index = go.delay_index([(0, 1, DUE_NS, PENDING)])
    # One entry more than is counted: to be known, but no damage.
    go.write_bytes(delay_path(source_path), index[:8] + bytes(8) + index[16:])
    summary = import_queue("goqueue", source_path, None, dry_run=True, strict=strict)
    assert [finding.path.name for finding in summary.findings] == ["delay.index"]
