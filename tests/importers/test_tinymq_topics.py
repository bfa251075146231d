"""Logs of TinyMQ as a whole: which messages live, whose they are, and what is damaged."""

from pathlib import Path
from typing import Any

import pytest
from support.sources import DISK, damage, only, topic_named
from support.tinymq_files import MOMENT, ack, put, uuid, write_log

from quivermq.errors import InvalidRequest
from quivermq.importers import tinymq_log
from quivermq.importers.model import Item, Position, SourceGroup, text_identity
from quivermq.importers.tinymq import looks_like, open_source


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def items(path: Path, topic: str = "orders") -> list[Item]:
    return list(topic_named(open_source(path, DISK).topics, topic).items())


def live(path: Path, topic: str = "orders") -> list[tuple[bytes, int]]:
    return [(item.value, item.attempts) for item in items(path, topic) if not item.is_consumed]


def test_what_was_acknowledged_is_consumed_and_the_rest_lives(source: Path) -> None:
    write_log(source / "orders.log", put(1), put(2), ack(1), put(3), ack(9))
    assert [(item.id, item.is_consumed) for item in items(source)] == [
        (uuid(1), True),
        (uuid(2), False),
        (uuid(3), False),
    ]


def test_the_first_put_tells_the_place_and_the_last_the_rest(source: Path) -> None:
    again = [put(1, b"new", retry_count=n) for n in (1, 2)]
    write_log(source / "orders.log", put(1, b"old"), put(2, b"two"), again[0], put(3, b"three"), again[1])
    assert live(source) == [(b"new", 2), (b"two", 0), (b"three", 0)]


def test_what_comes_again_after_its_ack_lives_in_its_new_place(source: Path) -> None:
    write_log(source / "orders.log", put(1, b"a"), put(2, b"b"), ack(1), put(3, b"c"), put(1, b"again"))
    assert live(source) == [(b"b", 0), (b"c", 0), (b"again", 0)]


def test_a_damaged_ack_acknowledges_nothing_and_a_damaged_put_replaces_nothing(source: Path) -> None:
    broken_ack, broken_put = ack(1).replace(b"ACK", b"ACX"), put(2, b"new").replace(b"PUT", b"PUX")
    write_log(source / "orders.log", put(1, b"a"), put(2, b"b"), broken_ack, broken_put)
    assert live(source) == [(b"a", 0), (b"b", 0)]


def test_a_log_that_is_cut_anywhere_keeps_what_is_whole(source: Path) -> None:
    lines = [put(1, b"a"), put(2, b"b", headers={"x": "y"}), ack(1)]
    path = write_log(source / "orders.log", *lines)
    data = path.read_bytes()
    ends = [sum(len(line) + 1 for line in lines[: n + 1]) - 1 for n in range(len(lines))]
    for cut in range(len(lines[0]), len(data)):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        opened = open_source(source, DISK)
        found = [item for item in opened.topics[0].items() if not item.is_consumed]
        assert [item.id for item in found] == [[uuid(1)], [uuid(1), uuid(2)], [uuid(2)]][whole - 1], cut
        start = ends[whole - 1] + 1
        assert damage(opened.findings) == ([("orders.log", start, cut - start)] if cut > start else []), cut


@pytest.mark.parametrize("garbage", [b"garbage", b"\x00" * 50, b'{"type":"PUT"', b"\xff" * 9, b"}"])
def test_garbage_between_lines_costs_nothing_but_itself(source: Path, garbage: bytes) -> None:
    first = put(1, b"a")
    write_log(source / "orders.log", first, garbage, put(2, b"b"))
    opened = open_source(source, DISK)
    assert [item.value for item in opened.topics[0].items()] == [b"a", b"b"]
    assert damage(opened.findings) == [("orders.log", len(first) + 1, len(garbage))]


def test_empty_lines_are_nothing(source: Path) -> None:
    write_log(source / "orders.log", b"", put(1, b"a"), b"  ", b"\r", put(2, b"b") + b"\r")
    opened = open_source(source, DISK)
    assert [item.value for item in opened.topics[0].items()] == [b"a", b"b"]
    assert opened.findings.count == 0


@pytest.mark.parametrize("chunk", [7, 64, 1000])
def test_lines_that_are_too_long_are_passed_over_unread(
    source: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tinymq_log, "_CHUNK_BYTES", chunk)
    monkeypatch.setattr(tinymq_log, "LINE_BYTES_MAX", 600)
    long = put(2, b"x" * 3000)
    lines = [put(1, b"a"), long, put(3, b"c"), put(1, b"new", retry_count=1), long]
    path = write_log(source / "orders.log", *lines)
    path.write_bytes(path.read_bytes()[:-1])
    opened = open_source(source, DISK)
    assert [item.value for item in opened.topics[0].items()] == [b"new", b"c"]
    starts = [sum(len(line) + 1 for line in lines[:n]) for n in (1, 4)]
    assert damage(opened.findings) == [("orders.log", start, len(long)) for start in starts]


def test_an_old_and_a_new_file_of_a_topic_are_one_log(source: Path) -> None:
    # TinyMQ writes the new name as soon as it writes again, and reads the old one no more.
    write_log(source / "iot@temp.log", put(1, b"a", topic="iot/temp"), put(2, b"b", topic="iot/temp"))
    write_log(source / "iot_b_temp.log", ack(1), put(3, b"c", topic="iot/temp"))
    [topic] = open_source(source, DISK).topics
    assert (topic.name, live(source, "iot/temp")) == ("iot/temp", [(b"b", 0), (b"c", 0)])


@pytest.mark.parametrize(
    ("file", "told", "name"),
    [
        ("a_b_b.log", "a/b", "a/b"),
        ("x_b_y.log", "x_b_y", "x_b_y"),
        ("a@b.log", "a/b", "a/b"),
        ("a_b_b.log", "elsewhere", "a/b"),
        ("a@b@c.log", None, "a/b/c"),
        ("a_a_b.log", None, "a@b"),
        ("plain.log", None, "plain"),
    ],
)
def test_a_topic_is_called_what_its_messages_say_if_the_file_can_be_that(
    source: Path, file: str, told: str | None, name: str
) -> None:
    write_log(source / file, ack(1) if told is None else put(1, topic=told))
    assert [topic.name for topic in open_source(source, DISK).topics] == [name]


def test_dead_letters_are_those_of_their_topic(source: Path) -> None:
    write_log(source / "jobs.log", put(1, topic="jobs"))
    write_log(source / "jobs.dlq.log", put(2, b"x", topic="jobs.dlq", retry_count=3), put(3), ack(3))
    write_log(source / "jobs::g.dlq.log", put(4, b"y", topic="jobs::g.dlq", retry_count=3))
    write_log(source / "gone.dlq.log", put(5, b"z", topic="gone.dlq"))
    opened = open_source(source, DISK)
    assert [topic.name for topic in opened.topics] == ["gone", "jobs"]
    letters = list(topic_named(opened.topics, "jobs").dead_letters())
    told = [(x.value, x.is_consumed, x.dead.attempts, x.dead.group) for x in letters if x.dead is not None]
    assert told == [(b"x", False, 3, None), (b"message 3", True, 0, None), (b"y", False, 3, "g")]
    assert [letter.value for letter in topic_named(opened.topics, "gone").dead_letters()] == [b"z"]
    assert list(topic_named(opened.topics, "gone").items()) == []


def copy(number: int, payload: bytes, second: int, group: str = "", **fields: Any) -> bytes:
    """A message of that second, or the copy of it that a group has: just before it, under another id."""
    moment = f"2026-11-15T19:56:{second:02d}.{'4' if group else '5'}Z"
    topic = f"orders::{group}" if group else "orders"
    return put(number, payload, topic=topic, timestamp=moment, **fields)


def test_the_copies_of_a_group_are_what_it_has_left_of_the_topic(source: Path) -> None:
    own = [copy(n, b"same" if n < 3 else b"%d" % n, second=n) for n in range(1, 6)]
    write_log(source / "orders.log", *own, ack(2))
    copies = [copy(10 + n, b"same" if n < 3 else b"%d" % n, second=n, group="g") for n in range(1, 5)]
    write_log(
        source / "orders::g.log", *copies, ack(11), copy(13, b"3", second=3, group="g", retry_count=2)
    )
    [topic] = open_source(source, DISK).topics
    everybody = 2**128
    assert topic.groups == [
        SourceGroup("default", {0: Position(everybody, {text_identity(uuid(n)): 0 for n in (1, 3, 4, 5)})}),
        SourceGroup(
            "g", {0: Position(everybody, {text_identity(uuid(n)): a for n, a in ((2, 0), (3, 2), (4, 0))})}
        ),
    ]
    assert [(item.id, item.is_consumed) for item in topic.items()] == [
        (uuid(n), False) for n in range(1, 6)
    ]


def test_a_copy_without_its_message_is_one_of_its_own(source: Path) -> None:
    write_log(source / "orders.log", copy(1, b"a", second=1), copy(2, b"b", second=40))
    copies = [
        copy(11, b"a", second=1, group="g"),
        copy(12, b"b", second=2, group="g"),
        put(13, b"c"),
        ack(13),
    ]
    write_log(source / "orders::g.log", *copies)
    [topic] = open_source(source, DISK).topics
    left = topic.groups[1].positions[0].unfinished
    assert set(left) == {text_identity(uuid(1)), text_identity(uuid(12))}
    assert [item.value for item in topic.items()] == [b"a", b"b", b"b"]


def test_a_group_whose_topic_was_never_written_has_its_messages(source: Path) -> None:
    write_log(source / "orders::g.log", copy(11, b"a", second=1, group="g"))
    [topic] = open_source(source, DISK).topics
    assert (topic.name, [item.value for item in topic.items()]) == ("orders", [b"a"])
    assert [group.name for group in topic.groups] == ["default", "g"]


def test_damage_in_a_groups_log_is_told_once(source: Path) -> None:
    write_log(source / "orders.log", put(1))
    write_log(source / "orders::g.log", b"garbage", put(2, topic="orders::g"))
    opened = open_source(source, DISK)
    assert len(list(opened.topics[0].items())) == 2
    assert len(opened.topics[0].groups) == 2
    assert only(opened.findings).path.name == "orders::g.log"


def test_a_copy_that_expires_at_another_time_is_one_all_the_same(source: Path) -> None:
    # The retention of a topic makes a time to live for each of them anew, or for one of them only.
    own = [copy(n, b"same", second=n, expires_at=f"2099-11-15T19:56:{n:02d}.5Z") for n in (1, 2)]
    write_log(source / "orders.log", *own)
    copies = [copy(11, b"same", second=1, group="g", expires_at="2099-11-15T19:56:01.4Z")]
    write_log(source / "orders::g.log", *copies, copy(12, b"same", second=2, group="g"), ack(11))
    [topic] = open_source(source, DISK).topics
    assert set(topic.groups[1].positions[0].unfinished) == {text_identity(uuid(2))}
    assert [item.id for item in topic.items()] == [uuid(1), uuid(2)]


def test_a_topic_whose_first_message_is_large_is_known_for_what_it_is(source: Path) -> None:
    write_log(source / "x_b_y.log", put(1, bytes(1_000_000), topic="x_b_y"))
    assert looks_like(source, DISK)
    assert [len(item.value) for item in items(source, "x_b_y")] == [1_000_000]


@pytest.mark.parametrize("line", [put(1)[:-30], put(1).replace(b'"checksum":', b'"checksum":1')])
def test_a_log_in_which_nothing_is_whole_is_told_by_its_place(source: Path, line: bytes) -> None:
    write_log(source / "orders.log", line)
    opened = open_source(source, DISK)
    assert looks_like(source, DISK)
    assert list(opened.topics[0].items()) == []
    assert damage(opened.findings) == [("orders.log", 0, len(line))]


def test_dead_letters_and_copies_may_name_the_topic_itself(source: Path) -> None:
    write_log(source / "x_b_y.log", put(1, topic="x_b_y"))
    write_log(source / "x_b_y.dlq.log", put(2, topic="x_b_y"))
    write_log(source / "x_b_y::a_b_b.log", put(3, topic="x_b_y"))
    [topic] = open_source(source, DISK).topics
    assert topic.name == "x_b_y"
    assert [letter.id for letter in topic.dead_letters()] == [uuid(2)]
    assert [group.name for group in topic.groups] == ["default", "a/b"]


def test_what_is_no_log_is_left_alone(source: Path) -> None:
    write_log(source / "orders.log", put(1, b"a"))
    write_log(source / "orders.log.tmp", put(2))
    (source / "config.json").write_text("{}")
    (source / "deep").mkdir()
    (source / ".log").write_text("x")
    (source / "link.log").symlink_to(source / "orders.log")
    opened = open_source(source, DISK)
    assert [topic.name for topic in opened.topics] == ["link", "orders"]
    assert [item.value for topic in opened.topics for item in topic.items()] == [b"a"]
    assert "not a regular file" in only(opened.findings).problem


def test_what_is_not_tinymq_is_refused_in_words(source: Path) -> None:
    (source / "orders.log").write_text("plain text\n")
    with pytest.raises(
        InvalidRequest, match=r"is not a TinyMQ directory: it has no log such as orders\.log"
    ):
        open_source(source, DISK)
    assert not looks_like(source, DISK)


def test_a_directory_whose_logs_were_all_purged_has_topics_without_messages(source: Path) -> None:
    (source / "orders.log").touch()
    [topic] = open_source(source, DISK).topics
    assert (topic.name, list(topic.items()), topic.size_bytes) == ("orders", [], 0)


def test_a_line_is_found_again_wherever_it_lies(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tinymq_log, "_CHUNK_BYTES", 160)
    write_log(source / "a@b.log", *(put(n, b"%d" % n, topic="a/b") for n in range(5)))
    lines = [put(n, b"again %d" % n + b"x" * 300, topic="a/b", retry_count=1) for n in (3, 1)]
    path = write_log(source / "a_b_b.log", put(7, topic="a/b"), *lines)
    path.write_bytes(path.read_bytes()[:-1])
    found = dict(live(source, "a/b"))
    assert [value[:7] for value in found] == [b"0", b"again 1", b"2", b"again 3", b"4", b"message"]
    assert MOMENT.encode() in lines[0]
