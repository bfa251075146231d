"""What becomes of the items of a source: every field, and everything that the source knows besides."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.fake_source import MOMENT_US, FakeTopic, Shelf, item, letter

import quivermq
from quivermq import Settings, StorageSettings
from quivermq.importers import TopicSummary, import_queue
from quivermq.importers.model import Death, Position, SeenId, SourceGroup


def in_hours(hours: float) -> int:
    return round((datetime.now(UTC) + timedelta(hours=hours)).timestamp() * 1_000_000)


def run(mq: Any, shelf: Shelf, *topics: FakeTopic, **options: Any) -> list[TopicSummary]:
    shelf.topics = list(topics)
    return import_queue("fake", "/fake", mq, **options).topics


def taken(mq: Any, topic: str = "orders", group: str = "default") -> list[Any]:
    found: list[Any] = mq.queue(topic, group).get_many(1000)
    return found


def test_every_field_comes_along_in_order(mq: Any, shelf: Shelf) -> None:
    first = item(5, key=b"k", headers={"a": b"\xff", "b": b""}, expires_at_us=in_hours(1))
    made = [first, item(6, value=b""), item(9, value=b"x" * 100_000)]
    [summary] = run(mq, shelf, FakeTopic(live=made))
    assert (summary.imported, summary.already_there, summary.consumed) == (3, 0, 0)
    read = mq.queue("orders").read()
    assert [m.value for m in read] == [each.value for each in made]
    assert [m.timestamp for m in read] == [each.timestamp_us for each in made]
    assert [m.key for m in read] == [b"k", None, None]
    assert [m.expires_at for m in read] == [first.expires_at_us, None, None]
    assert read[0].headers == {"a": b"\xff", "b": b"", "quiver-import-id": b"5"}
    assert [m.attempt for m in taken(mq)] == [1, 1, 1]


def test_an_id_that_is_not_the_offset_is_kept_beside_it(mq: Any, shelf: Shelf) -> None:
    run(mq, shelf, FakeTopic(live=[item(5, id="msg-5"), item(6, id="007"), item(7, id="")]))
    headers = [m.headers for m in mq.queue("orders").read()]
    assert headers == [
        {"quiver-import-id": b"msg-5", "quiver-import-offset": b"5"},
        {"quiver-import-id": b"007", "quiver-import-offset": b"6"},
        {"quiver-import-id": b"", "quiver-import-offset": b"7"},
    ]


def test_priorities_become_lanes_and_more_levels_are_told(mq: Any, shelf: Shelf) -> None:
    levels: list[tuple[Any, Any]] = [
        ("low", "background"),
        ("high", "critical"),
        ("normal", None),
        ("high", None),
    ]
    made = [item(n, level=level, priority=word) for n, (level, word) in enumerate(levels)]
    run(mq, shelf, FakeTopic(live=made))
    lanes = {p: [m.value for m in mq.queue("orders").read(priority=p)] for p in ("high", "normal", "low")}
    assert lanes == {"high": [b"1", b"3"], "normal": [b"2"], "low": [b"0"]}
    critical = mq.queue("orders").read(priority="high")[0]
    assert critical.headers["quiver-import-priority"] == b"critical"


def test_partitions_keep_their_numbers(mq: Any, shelf: Shelf) -> None:
    made = [item(n // 3, value=b"%d" % n, partition=n % 3) for n in range(9)]
    run(mq, shelf, FakeTopic(live=made, partitions=3))
    assert mq.topic("orders").partitions == 3
    read = [[m.value for m in mq.queue("orders").read(partition=p)] for p in range(3)]
    assert read == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5", b"8"]]


def test_a_topic_with_fewer_partitions_takes_several_into_one(mq: Any, shelf: Shelf) -> None:
    mq.create_topic("orders", partitions=2)
    made = [item(n // 3, value=b"%d" % n, partition=n % 3) for n in range(9)]
    group = SourceGroup("g", {0: Position(2, {}), 2: Position(1, {0: 1})})
    shelf.topics = [FakeTopic(live=made, partitions=3, groups=[group])]
    told = import_queue("fake", "/fake", mq, all=True)
    assert (told.topics[0].imported, told.topics[0].groups) == (9, ["g"])
    [finding] = told.findings
    assert (finding.problem, finding.is_damage) == (
        "orders has 3 partitions and orders 2: several go into one",
        False,
    )
    # Of partition 0 the first two are finished, of partition 2 the first was tried once.
    left = {m.value: m.attempt for m in taken(mq, group="g")}
    assert left == {b"6": 1, b"1": 1, b"4": 1, b"7": 1, b"2": 2, b"5": 1, b"8": 1}


def test_what_is_consumed_or_has_expired_stays_behind(mq: Any, shelf: Shelf) -> None:
    made = [item(1, is_consumed=True), item(2, expires_at_us=in_hours(-1)), item(3)]
    [summary] = run(mq, shelf, FakeTopic(live=made))
    assert (summary.imported, summary.consumed, summary.expired) == (1, 1, 1)
    assert [m.value for m in taken(mq)] == [b"3"]


def test_with_all_everything_comes_and_what_has_expired_is_still_not_delivered(
    mq: Any, shelf: Shelf
) -> None:
    made = [item(1, is_consumed=True), item(2, expires_at_us=in_hours(-1)), item(3)]
    [summary] = run(mq, shelf, FakeTopic(live=made), all=True)
    assert (summary.imported, summary.consumed, summary.expired) == (3, 0, 0)
    assert [m.value for m in mq.queue("orders").read()] == [b"1", b"2", b"3"]
    assert [m.value for m in taken(mq)] == [b"1", b"3"]


def test_with_all_after_an_import_without_only_the_rest_comes(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(1, is_consumed=True), item(2), item(3, is_consumed=True)])
    assert run(mq, shelf, topic)[0].imported == 1
    [summary] = run(mq, shelf, topic, all=True)
    assert (summary.imported, summary.already_there) == (2, 1)
    assert sorted(m.value for m in taken(mq)) == [b"1", b"2", b"3"]


def test_a_delay_goes_on(mq: Any, shelf: Shelf) -> None:
    due, late = in_hours(5), in_hours(9)
    waiting = item(2, key=b"k", deliver_at_us=due, expires_at_us=late, level="high", headers={"a": b"1"})
    made = [item(1, deliver_at_us=in_hours(-5)), waiting, item(3)]
    [summary] = run(mq, shelf, FakeTopic(live=made))
    assert (summary.imported, summary.scheduled) == (3, 1)
    assert [m.value for m in taken(mq)] == [b"1", b"3"]
    [scheduled] = mq.queue("orders").scheduled()
    assert (scheduled.value, scheduled.key, scheduled.priority) == (b"2", b"k", "high")
    assert abs(scheduled.deliver_at - due) < 1_000_000
    assert abs(scheduled.expires_at - late) < 1_000_000
    assert (scheduled.timestamp, scheduled.headers["a"]) == (MOMENT_US + 2, b"1")


def test_attempts_count_on_for_the_group_that_is_named(mq: Any, shelf: Shelf) -> None:
    made = [item(1), item(2, attempts=2, reason="timeout"), item(3, attempts=1)]
    [summary] = run(mq, shelf, FakeTopic(live=made), groups=["default", "billing"])
    assert summary.retried == 2
    for group, attempts in (("default", [1, 3, 2]), ("billing", [1, 3, 2]), ("audit", [1, 1, 1])):
        assert [m.attempt for m in taken(mq, group=group)] == attempts
    assert mq.queue("orders").read()[1].headers["quiver-import-reason"] == b"timeout"


def test_the_last_attempt_of_an_imported_message_makes_it_a_dead_letter(mq: Any, shelf: Shelf) -> None:
    mq.create_topic("orders", attempts_max=3)
    run(mq, shelf, FakeTopic(live=[item(1, attempts=2)]))
    [message] = taken(mq)
    message.nack(reason="again")
    [dead] = mq.queue("orders").dead_letters()
    assert (dead.value, dead.attempts, dead.reason) == (b"1", 3, "again")


def test_dead_letters_are_dead_letters_and_can_go_back(mq: Any, shelf: Shelf) -> None:
    story = {"original_id": "77", "partition": 0, "offset": 77, "attempts": 3, "reason": "boom"}
    made = letter(1, **story, error="trace", group="workers", time_us=MOMENT_US + 99)
    made.headers, made.key, made.level = {"own": b"1"}, b"k", "high"
    [summary] = run(mq, shelf, FakeTopic(live=[item(5)], dead=[made, letter(2)]))
    assert (summary.imported, summary.dead_letters) == (1, 2)
    first, second = mq.queue("orders").dead_letters()
    assert (first.value, first.key, first.topic, first.partition) == (b"dead 1", b"k", "orders", 0)
    assert (first.offset, first.attempts, first.reason, first.error) == (77, 3, "boom", "trace")
    assert (first.group, first.time, first.timestamp) == ("workers", MOMENT_US + 99, MOMENT_US + 1)
    assert first.priority == "high"
    assert (second.reason, second.attempts, second.group) == ("imported", 0, "")
    assert mq.queue("orders").redrive() == 2
    back = {m.value: m for m in taken(mq)}
    assert set(back) == {b"5", b"dead 1", b"dead 2"}
    assert back[b"dead 1"].priority == "high"
    assert back[b"dead 1"].headers["own"] == b"1"
    assert not any(name.startswith("quiver-dlq") for name in back[b"dead 1"].headers)


def test_dead_letters_alone_still_have_a_topic_to_go_back_to(mq: Any, shelf: Shelf) -> None:
    run(mq, shelf, FakeTopic(dead=[letter(1), letter(2, group="g")], witnesses=("dlq",)))
    assert mq.queue("orders").redrive() == 2
    assert [m.value for m in taken(mq)] == [b"dead 1", b"dead 2"]


def test_a_dead_letter_that_was_consumed_or_expired(mq: Any, shelf: Shelf) -> None:
    gone, old = letter(1), letter(2)
    gone.is_consumed, old.expires_at_us = True, in_hours(-3)
    [summary] = run(mq, shelf, FakeTopic(dead=[gone, old]))
    # What is dead already expires no more.
    assert (summary.dead_letters, summary.consumed, summary.expired) == (1, 1, 0)


def test_deduplication_ids_hold_for_the_time_they_have_left(mq: Any, shelf: Shelf) -> None:
    seen = [
        SeenId("here", in_hours(0.05), 2),
        SeenId("consumed", in_hours(0.05), 1),
        SeenId("over", in_hours(-1), 2),
        SeenId("unknown", in_hours(0.05)),
    ]
    [summary] = run(mq, shelf, FakeTopic(live=[item(1, is_consumed=True), item(2)], seen_ids=seen))
    assert summary.dedup_ids == 3
    orders = mq.queue("orders")
    puts = {name: orders.put(b"x", dedup_id=name) for name in ("here", "consumed", "over", "unknown")}
    assert {name: (put.duplicate, put.offset) for name, put in puts.items()} == {
        "here": (True, 0),
        "consumed": (True, None),
        "over": (False, 1),
        "unknown": (True, None),
    }


def test_a_window_that_is_longer_than_ours_makes_ours_longer_in_a_new_topic(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(1)], seen_ids=[SeenId("a", in_hours(2), 1)])
    run(mq, shelf, topic)
    assert mq.topic("orders").settings.dedup_window_ms > 7_000_000
    mq.create_topic("others")
    shelf.topics = [topic]
    told = import_queue("fake", "/fake", mq, topic="others").findings
    assert [finding.is_damage for finding in told] == [False]
    assert "remembered for longer" in told[0].problem


GROUPS = [
    SourceGroup("workers", {0: Position(6, {2: 2, 4: 1})}),
    SourceGroup("audit log", {0: Position(4, {})}),
]


def test_groups_go_on_where_they_were(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(n) for n in range(8)], groups=GROUPS)
    [summary] = run(mq, shelf, topic, all=True)
    assert (summary.imported, summary.groups, summary.groups_left) == (8, ["workers", "audit-log"], [])
    assert {m.value: m.attempt for m in taken(mq, group="workers")} == {b"2": 3, b"4": 2, b"6": 1, b"7": 1}
    assert [m.value for m in taken(mq, group="audit-log")] == [b"4", b"5", b"6", b"7"]
    assert len(taken(mq, group="new")) == 8


def test_what_all_groups_have_finished_is_consumed(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(n) for n in range(8)], groups=GROUPS)
    [summary] = run(mq, shelf, topic)
    assert (summary.imported, summary.consumed) == (5, 3)
    assert {m.value: m.attempt for m in taken(mq, group="workers")} == {b"2": 3, b"4": 2, b"6": 1, b"7": 1}
    assert [m.value for m in taken(mq, group="audit-log")] == [b"4", b"5", b"6", b"7"]


def test_messages_that_were_there_before_are_not_finished_by_an_imported_group(
    mq: Any, shelf: Shelf
) -> None:
    mq.queue("orders").put_many([b"before"] * 2)
    run(
        mq,
        shelf,
        FakeTopic(live=[item(n) for n in range(3)], groups=[SourceGroup("g", {0: Position(2)})]),
        all=True,
    )
    assert sorted(m.value for m in taken(mq, group="g")) == [b"2", b"before", b"before"]


def test_groups_of_lanes_that_lie_apart(mq: Any, shelf: Shelf) -> None:
    levels: list[Any] = ["high", "normal", "low"]
    made = [item(n, level=levels[n % 3]) for n in range(9)]
    run(mq, shelf, FakeTopic(live=made, groups=[SourceGroup("g", {0: Position(5, {1: 4})})]), all=True)
    left = {m.value: m.attempt for m in taken(mq, group="g")}
    assert left == {b"1": 5, b"5": 1, b"6": 1, b"7": 1, b"8": 1}


def test_a_message_that_is_too_large_is_told_and_costs_no_other(mq: Any, shelf: Shelf) -> None:
    mq.create_topic("orders", message_bytes_max=1000)
    shelf.topics = [FakeTopic(live=[item(1), item(2, value=bytes(2000)), item(3, value=bytes(970))])]
    summary = import_queue("fake", "/fake", mq)
    assert (summary.topics[0].imported, summary.topics[0].unstorable, summary.damages) == (2, 1, 1)
    assert "larger message_bytes_max" in summary.findings[0].problem
    with pytest.raises(quivermq.StorageFailed, match="nothing was imported"):
        import_queue("fake", "/fake", mq, strict=True)
    assert [m.value for m in taken(mq)] == [b"1", bytes(970)]


def test_a_topic_of_which_nothing_is_left_is_there_all_the_same(mq: Any, shelf: Shelf) -> None:
    groups = [SourceGroup("g", {0: Position(2)})]
    topics = [FakeTopic(name="done", live=[item(1)], groups=groups, partitions=3), FakeTopic(name="empty")]
    told = [[each.as_json() for each in run(mq, shelf, *topics, dry_run=dry)] for dry in (True, False)]
    assert told[0] == told[1]
    assert [(each["consumed"], each["groups"]) for each in told[0]] == [(1, ["g"]), (0, [])]
    assert mq.topics() == ["done", "empty", "quiver.imports"]
    assert mq.queue("done").put(b"new", partition=2).partition == 2


def test_a_new_topic_lets_in_what_the_source_has(mq: Any, shelf: Shelf) -> None:
    large, larger = bytes(3 * 1024 * 1024), bytes(5 * 1024 * 1024)
    made = [item(1), item(2, value=large), item(3), item(4, value=larger), item(5, value=bytes(20_000_000))]
    topic = FakeTopic(live=made, dead=[letter(1), item(2, value=larger, dead=Death())])
    counts = []
    for options in ({"dry_run": True}, {}, {}, {"dry_run": True}):
        [told] = run(mq, shelf, topic, **options)
        counts.append((told.imported, told.dead_letters, told.already_there, told.unstorable))
    # More than a frame can have is told, and costs no other.
    assert counts == [(4, 2, 0, 1), (4, 2, 0, 1), (0, 0, 6, 1), (0, 0, 6, 1)]
    # A broker hands out a few large ones at a time.
    assert [m.value for m in (*taken(mq), *taken(mq))] == [b"1", large, b"3", larger]
    assert [m.value for m in mq.queue("orders").dead_letters()] == [b"dead 1", larger]


@pytest.mark.parametrize("first_bytes", [1_000_000, 3_000_000])
def test_a_queue_with_smaller_frames_than_usual_takes_what_it_can(
    shelf: Shelf, tmp_path: Path, first_bytes: int
) -> None:
    storage = StorageSettings(
        durability="os", message_bytes_max=500_000, batch_bytes=500_000, frame_bytes_max=600_000
    )
    sizes = (first_bytes, 400_000, 100, 1_200_000)
    topic = FakeTopic(live=[item(n, value=bytes(size)) for n, size in enumerate(sizes)])
    with quivermq.open(tmp_path / "data", Settings(storage=storage)) as mq:
        [told] = run(mq, shelf, topic)
        assert (told.imported, told.unstorable) == (2, 2)
        assert [len(m.value) for m in taken(mq)] == [400_000, 100]


def test_a_queue_whose_usual_limit_is_small_lets_in_what_the_source_has(
    shelf: Shelf, tmp_path: Path
) -> None:
    storage = StorageSettings(durability="os", message_bytes_max=1000)
    topic = FakeTopic(
        live=[item(1, value=bytes(5000))], dead=[letter(1), item(2, value=bytes(9000), dead=Death())]
    )
    with quivermq.open(tmp_path / "data", Settings(storage=storage)) as mq:
        [told] = run(mq, shelf, topic)
        assert (told.imported, told.dead_letters, told.unstorable) == (1, 2, 0)


def test_a_new_topic_is_not_made_smaller_than_usual(shelf: Shelf, tmp_path: Path) -> None:
    storage = StorageSettings(durability="os", message_bytes_max=8_000_000)
    with quivermq.open(tmp_path / "data", Settings(storage=storage)) as mq:
        assert run(mq, shelf, FakeTopic(live=[item(1, value=bytes(3_000_000))]))[0].imported == 1
        assert mq.topic("orders").settings.message_bytes_max == 8_000_000


def test_a_topic_that_an_import_made_lets_in_what_comes_later(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(1)])
    run(mq, shelf, topic)
    topic.live.append(item(2, value=bytes(3_000_000)))
    assert run(mq, shelf, topic, strict=True)[0].imported == 1
    # Whoever makes it smaller means it.
    mq.alter_topic("orders", message_bytes_max=3_500_000)
    topic.live.append(item(3, value=bytes(4_000_000)))
    [told] = run(mq, shelf, topic)
    assert (told.imported, told.unstorable) == (0, 1)


def test_attempts_of_a_message_that_waits_are_told_to_be_lost(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1, attempts=1), item(2, attempts=2, deliver_at_us=in_hours(1))])]
    for is_dry in (True, False):
        summary = import_queue("fake", "/fake", mq, dry_run=is_dry)
        assert (summary.topics[0].retried, summary.topics[0].scheduled, summary.damages) == (1, 1, 0)
        [finding] = summary.findings
        assert "that were tried before and wait until they are due: 1." in finding.problem


def test_a_message_that_makes_no_sense_is_told_and_costs_no_other(mq: Any, shelf: Shelf) -> None:
    late = 2**70
    made = [item(1), item(2, timestamp_us=late), item(3, headers={"\ud800": b""}), item(4)]
    made += [item(5, deliver_at_us=late), item(6, deliver_at_us=in_hours(1)), item(7, deliver_at_us=late)]
    shelf.topics = [FakeTopic(live=made)]
    for _ in range(2):
        summary = import_queue("fake", "/fake", mq)
        assert (summary.topics[0].unstorable, summary.damages) == (4, 4)
        assert all("cannot be stored" in finding.problem for finding in summary.findings)
    assert (summary.topics[0].imported, summary.topics[0].already_there) == (0, 3)
    assert [m.value for m in taken(mq)] == [b"1", b"4"]
    assert [s.value for s in mq.queue("orders").scheduled()] == [b"6"]


def test_a_dry_run_counts_and_writes_nothing(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [
        FakeTopic(live=[item(1), item(2, attempts=1)], dead=[letter(1)], groups=[SourceGroup("g", {})])
    ]
    summary = import_queue("fake", "/fake", mq, dry_run=True)
    [told] = summary.topics
    assert (told.imported, told.dead_letters, told.retried, told.groups) == (2, 1, 1, ["g"])
    assert mq.topics() == []
    import_queue("fake", "/fake", mq)
    [told] = import_queue("fake", "/fake", mq, dry_run=True).topics
    assert (told.imported, told.already_there) == (0, 3)


def test_a_dry_run_needs_no_queue(shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1)])]
    assert import_queue("fake", "/fake", None, dry_run=True).topics[0].imported == 1
    with pytest.raises(quivermq.InvalidRequest, match="only a dry run"):
        import_queue("fake", "/fake", None)


def test_progress_is_told_up_to_the_end(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(n, value=bytes(200_000)) for n in range(20)])]
    seen: list[tuple[int, int]] = []
    import_queue("fake", "/fake", mq, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert (seen[-1], len(seen) > 2) == ((2000, 2000), True)


def test_many_messages_are_many_frames(mq: Any, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quivermq.importers.stream._CHUNK_MESSAGES", 10)
    levels: list[Any] = ["high", "normal", "low"]
    made = [item(n, level=levels[n % 3], attempts=n % 2) for n in range(95)]
    [summary] = run(mq, shelf, FakeTopic(live=made))
    assert (summary.imported, summary.retried) == (95, 47)
    found = {int(m.value): (m.attempt, m.priority) for m in taken(mq)}
    assert found == {n: (n % 2 + 1, levels[n % 3]) for n in range(95)}
    for lane, level in enumerate(levels):
        values = [int(m.value) for m in mq.queue("orders").read(priority=level)]
        assert values == list(range(lane, 95, 3))


def test_settings_come_along_to_a_topic_that_is_new(mq: Any, shelf: Shelf) -> None:
    settings = {"attempts_max": 11, "lease_ms": 45_000, "ttl_ms": 3_600_000}
    [summary] = run(mq, shelf, FakeTopic(live=[item(1)], settings=settings))
    assert summary.settings == settings
    made = mq.topic("orders")
    assert (made.settings.attempts_max, made.settings.lease_ms, made.settings.ttl_ms) == (
        11,
        45_000,
        3_600_000,
    )
    # A message without an end where it was has none here either.
    assert [m.expires_at for m in mq.queue("orders").read()] == [None]


def test_a_topic_that_is_there_keeps_its_settings_and_that_is_told(mq: Any, shelf: Shelf) -> None:
    mq.create_topic("orders", attempts_max=5)
    shelf.topics = [FakeTopic(live=[item(1)], settings={"attempts_max": 11})]
    told = import_queue("fake", "/fake", mq)
    assert told.topics[0].settings == {}
    assert [each.problem for each in told.findings] == [
        "orders was there, and keeps its settings; orders has attempts_max=11"
    ]
    assert mq.topic("orders").settings.attempts_max == 5


def test_settings_that_do_not_fit_here_are_told_and_cost_nothing(mq: Any, shelf: Shelf) -> None:
    shelf.topics = [FakeTopic(live=[item(1)], settings={"message_bytes_max": 2**40})]
    told = import_queue("fake", "/fake", mq)
    assert (told.topics[0].imported, told.topics[0].settings) == (1, {})
    assert "do not fit here" in told.findings[0].problem


def test_a_dry_run_tells_settings_and_what_was_passed_over(mq: Any, shelf: Shelf) -> None:
    topic = FakeTopic(live=[item(1, is_consumed=True)], settings={"lease_ms": 1}, passed_over=1)
    [summary] = run(mq, shelf, topic, dry_run=True)
    assert (summary.settings, summary.passed_over) == ({"lease_ms": 1}, 1)
    assert run(mq, shelf, topic, dry_run=True, all=True)[0].passed_over == 0
