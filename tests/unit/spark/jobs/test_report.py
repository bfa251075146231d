"""The parts of a report, without Spark: what is counted, how it is put together, and what the page says."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.manual_clock import ManualClock
from support.manual_scheduler import ManualScheduler

import quivermq
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.frame import Codec, Frame, encode
from quivermq.model.lanes import Lane
from quivermq.reading.directory import DirectoryReader
from quivermq.reading.rows import TimeRange
from quivermq.spark.jobs.report import MessageTask, _count, _planned, report
from quivermq.spark.jobs.report_counting import MessageScan, read_acks
from quivermq.spark.jobs.report_figures import (
    STEPS,
    Figures,
    MessageFigures,
    Moments,
    ReportContents,
    contents_of,
    edges_of,
    quantile,
    steps_of,
    value_of_step,
)
from quivermq.spark.jobs.report_page import page
from quivermq.spark.jobs.report_plots import (
    bytes_text,
    count_text,
    duration_text,
    key_text,
    line_text,
    second_text,
    short_count,
    width_text,
)

START = 1_700_000_000
START_US = START * 1_000_000
EVER = TimeRange(0, 2**62)
MADE = datetime(2026, 1, 31, 12, tzinfo=UTC)


def counted(path: Path, period: TimeRange = EVER) -> list[Figures]:
    place = DirectoryReader(str(path))
    tasks, _ = _planned(place, list(place.origins()), period)
    return list(_count(place, period, tasks))


def contents(path: Path, period: TimeRange = EVER) -> ReportContents:
    place = DirectoryReader(str(path))
    _, stored = _planned(place, list(place.origins()), period)
    return contents_of(
        counted(path, period),
        where=str(path),
        made_at=MADE,
        since=None,
        until=None,
        stored_bytes=stored,
        has_journals=True,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def mq(tmp_path: Path, clock: ManualClock) -> Iterator[quivermq.Connection]:
    with quivermq.open(tmp_path, clock=clock, scheduler=ManualScheduler(clock)) as mq:
        yield mq


def test_steps_hold_what_they_say() -> None:
    values = np.array([0, 1, 2, 100, 1000, 2**40, 2**62])
    steps = steps_of(values)
    assert steps[0] == steps[1] == 0
    for value, step in zip(values.tolist()[1:], steps.tolist()[1:], strict=True):
        assert value_of_step(step) <= value * 1.0001
        assert value < value_of_step(step + 1) * 1.0001


def test_quantiles_are_close() -> None:
    counts = np.zeros(STEPS, np.int64)
    np.add.at(counts, steps_of(np.arange(1, 1001)), 1)
    for share in (0.5, 0.95, 0.99):
        found = quantile(counts, share)
        assert found is not None
        assert found == pytest.approx(1000 * share, rel=0.1)
    assert quantile(np.zeros(STEPS, np.int64), 0.5) is None


def test_moments_are_summed_by_second_and_coarser_when_there_are_many() -> None:
    found = Moments.of(np.array([5, 3, 5]), np.array([1, 2, 3]), np.array([10, 20, 30]))
    assert (found.seconds.tolist(), found.counts.tolist()) == ([3, 5], [[2, 4], [20, 40]])
    seconds = np.arange(START, START + 10_000)
    many = Moments.of(seconds, np.ones(10_000, np.int64))
    assert len(many.seconds) < 200
    assert many.counts.sum() == 10_000
    assert found.by(np.array([0, 4, 6])).tolist() == [[2, 4], [20, 40]]
    assert found.by(np.array([4, 5])).tolist() == [[0], [0]]


def test_an_axis_has_steps_that_people_count_in() -> None:
    for length in (0, 10, 500, 5000, 90_000, 40_000_000):
        ends = Moments(np.array([START, START + length]), np.ones((1, 2), np.int64))
        edges = edges_of([ends])
        width = int(edges[1] - edges[0])
        assert width in (1, 2, 5, 10, 15, 30, 60, 900, 432_000, 604_800) or width % 60 == 0
        assert edges[0] <= START
        assert edges[-1] > START + length
        assert len(edges) <= 122
    assert len(edges_of([])) == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_scan_counts_messages_sizes_and_keys(codec: Codec) -> None:
    scan = MessageScan("orders")
    for number in range(4):
        values = [b"x" * size for size in (10, 100, 1000)]
        keys = [b"hot", b"hot", None if number else b"cold"]
        frame = encode(values, timestamp=START_US, keys=keys, codec=codec)
        scan(frame.stamped(3 * number, START_US + number * 500_000))
    scan(encode([b""], timestamp=START_US).stamped(12, START_US + 2_000_000))
    found = scan.figures()
    assert found.moments.seconds.tolist() == [START, START + 1, START + 2]
    assert found.moments.counts[0].tolist() == [6, 6, 1]
    assert found.sizes.sum() == 13
    assert found.sizes[steps_of(np.array([100]))[0]] == 4
    assert (found.size_max, found.keys, found.keyed) == (1000, {b"hot": 8, b"cold": 1}, 9)


def test_many_keys_are_told_from_a_part_of_the_frames() -> None:
    scan = MessageScan("orders")
    keys = [b"hot"] * 500 + [b"%d" % number for number in range(500)]
    frame = encode([b"x"] * 1000, timestamp=START_US, keys=keys)
    for number in range(400):
        scan(frame.stamped(number * 1000, START_US))
    found = scan.figures()
    assert found.are_keys_estimated
    assert found.sizes.sum() == 400_000
    assert found.keys[b"hot"] == pytest.approx(200_000, rel=0.25)
    assert found.keyed == pytest.approx(400_000, rel=0.25)


def test_what_compaction_took_out_does_not_count() -> None:
    from quivermq.frame import REMOVED

    scan = MessageScan("orders", is_compacted=True)
    frame = encode([b"", b"xy"], timestamp=START_US, keys=[None, b"k"], expires_at=[REMOVED, None])
    scan(frame.stamped(0, START_US))
    found = scan.figures()
    assert found.moments.counts[0].tolist() == [1]
    assert (found.sizes.sum(), found.keys) == (1, {b"k": 1})


def test_latency_is_from_the_append_to_the_ack(
    mq: quivermq.Connection, clock: ManualClock, tmp_path: Path
) -> None:
    mq.create_topic("orders", partitions=2)
    orders = mq.queue("orders", "billing")
    for partition in range(2):
        orders.put_many([quivermq.Message(value=b"x", partition=partition)] * 5)
    clock.advance(2)
    taken = orders.get_many(10)
    clock.advance(1)
    orders.ack(taken[:6])
    clock.advance(60)
    for message in orders.get_many(10):
        message.ack()
    found = contents(tmp_path)
    (group,) = found.groups
    assert (group.acks, group.lag, group.in_flight) == (10, 0, 0)
    assert group.latency.p50 == pytest.approx(3_000_000, rel=0.1)
    assert group.latency.p99 == pytest.approx(63_000_000, rel=0.1)
    assert found.latency.edges[0] <= START + 3 < found.latency.edges[1]
    assert [name for name, values in found.latency.rows.items() if values] == ["p50", "p95", "p99"]


def test_failures_and_dead_letters_are_told_apart_from_acks(
    mq: quivermq.Connection, clock: ManualClock, tmp_path: Path
) -> None:
    orders = mq.queue("orders", "billing")
    orders.put_many([b"x"] * 4)
    first, second, third, fourth = orders.get_many(4)
    first.ack()
    second.nack(delay=3600)
    third.reject("<broken>")
    found = contents(tmp_path)
    (group,) = found.groups
    # The lease of the fourth is over by the clock of those who look on.
    assert (group.acks, group.retrying + group.in_flight) == (1, 2)
    assert [(line.topic, line.reason, line.count) for line in found.reasons] == [("orders", "<broken>", 1)]
    assert sum(found.failures.rows["failed deliveries"]) == 1
    assert sum(found.failures.rows["dead letters"]) == 1
    acks, failed = read_acks(DirectoryReader(str(tmp_path)).journal_changes("orders", "billing", 0), EVER)
    assert acks[1].offsets()[0].tolist() == [0]
    assert failed.counts.sum() == 1
    fourth.ack()


def test_a_snapshot_repeats_no_ack(mq: quivermq.Connection, tmp_path: Path) -> None:
    orders = mq.queue("orders", "billing")
    orders.put_many([b"x"] * 3)
    orders.ack(orders.get_many(2))
    mq.compact()
    orders.ack(orders.get_many(1))
    assert [line.acks for line in contents(tmp_path).groups] == [1]


def test_only_the_period_counts(mq: quivermq.Connection, clock: ManualClock, tmp_path: Path) -> None:
    mq.create_topic("orders", segment_messages=2)
    for _ in range(10):
        mq.queue("orders").put(b"x")
        clock.advance(10)
    period = TimeRange(START_US + 30_000_000, START_US + 60_000_000)
    (figures,) = (each for each in counted(tmp_path, period) if isinstance(each, MessageFigures))
    assert figures.moments.seconds.tolist() == [START + 30, START + 40, START + 50]
    tasks, _ = _planned(DirectoryReader(str(tmp_path)), ["orders"], period)
    # The first segment came in before, and is not looked at.
    assert [task.part.start for task in tasks if isinstance(task, MessageTask)] == [2]


class _Page(HTMLParser):
    """What is on a page: its tags, everything that could be loaded, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_shows_whatever_a_message_says_as_text(mq: quivermq.Connection, tmp_path: Path) -> None:
    wicked = [b"<script>alert(1)</script>", b'"><img src=x>', b'id="x" #010101 $\\frac{1}{2}$', b"\xff\x00"]
    orders = mq.queue("orders", "<g>".strip("<>"))
    orders.put_many([quivermq.Message(value=b"x", key=key) for key in wicked])
    for message in orders.get_many(4):
        message.reject("<script>alert(2)</script>", error="<i>")
    text = page(contents(tmp_path))
    shown = _Page(text)
    assert {"script", "img", "i", "iframe", "link", "object"}.isdisjoint(shown.tags)
    words = "".join(shown.words)
    # In a plot and in its table.
    for key in wicked:
        assert words.count(key_text(key)) >= 2, key
    assert "<script>alert(2)</script>" in words


def test_the_page_asks_nobody_for_anything(mq: quivermq.Connection, tmp_path: Path) -> None:
    mq.queue("orders", "billing").put_many([b"x"] * 10)
    shown = _Page(page(contents(tmp_path)))
    assert all(link.startswith("#") for link in shown.links)
    assert len(shown.ids) == len(set(shown.ids))
    assert {link.removeprefix("#") for link in shown.links} <= set(shown.ids)
    text = page(contents(tmp_path))
    assert "default-src 'none'" in text
    assert not re.findall(r"url\((?!#)", text)
    assert "#010101" not in text


def test_an_empty_queue_is_told_in_words(mq: quivermq.Connection, tmp_path: Path) -> None:
    words = " ".join(_Page(page(contents(tmp_path))).words)
    for sentence in (
        "No message came in.",
        "tell of no ack",
        "There are no dead letters.",
        "No group has read",
        "no message to measure",
        "No message has a key.",
        "Nothing is stored.",
    ):
        assert sentence in words
    assert "could not be read" not in words


@pytest.mark.damages
def test_what_cannot_be_read_is_on_the_page(tmp_path: Path) -> None:
    from support.damage import flip

    with quivermq.open(tmp_path) as mq:
        mq.create_topic("broken", segment_messages=1)
        mq.queue("broken").put_many([b"x" * 100])
        mq.queue("broken").put_many([b"x" * 100])
        mq.queue("orders").put(b"x")
    flip(tmp_path / "topics/broken/p0/normal" / f"{0:020d}.log", 90)
    found = contents(tmp_path)
    (trouble,) = found.troubles
    assert trouble.where == "broken, partition 0, priority normal, offsets [0, 2)"
    assert "damaged at byte 0, offsets [0, 1)" in trouble.reason
    assert found.messages == 1
    words = "".join(_Page(page(found)).words)
    assert "What could not be read" in words
    assert "damaged at byte 0" in words


def test_a_broker_has_no_journals_and_the_page_says_so(tmp_path: Path, mq: quivermq.Connection) -> None:
    told = contents_of(
        [], where="http://x", made_at=MADE, since=MADE, until=None, stored_bytes={}, has_journals=False
    )
    words = "".join(_Page(page(told)).words)
    assert "make the report from the data directory" in words
    assert "from 2026-01-31 12:00:00 UTC until now" in words


def test_numbers_in_words() -> None:
    assert [count_text(each) for each in (0, 999, 1000, 1234567)] == [
        "0",
        "999",
        "1\u202f000",
        "1\u202f234\u202f567",
    ]
    assert [short_count(each) for each in (0, 12.5, 999, 1500, 2_000_000)] == [
        "0",
        "12.5",
        "999",
        "1.5k",
        "2M",
    ]
    assert [bytes_text(each) for each in (0, 1023, 1536, 5 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5 GiB",
    ]
    durations = [None, float("nan"), 5, 1500, 2_500_000, 90_000_000, 7_200_000_000, 200_000_000_000]
    assert [duration_text(each) for each in durations] == [
        "-",
        "-",
        "5 µs",
        "1.5 ms",
        "2.5 s",
        "1.5 min",
        "2 h",
        "2.31 d",
    ]
    assert [width_text(each) for each in (1, 30, 60, 7200, 86_400)] == [
        "second",
        "30 seconds",
        "minute",
        "2 hours",
        "day",
    ]
    assert key_text(b"") == "(empty)"
    assert key_text(b"a\nb") == "a\\nb"
    assert key_text(b"\xff") == "0xff"
    assert len(line_text("x" * 100, 20)) == 20


def test_a_period_without_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="since is not before until"):
        report(str(tmp_path), since=MADE, until=MADE)
    with pytest.raises(InvalidRequest, match="no time zone"):
        report(str(tmp_path), since=datetime(2026, 1, 1))  # noqa: DTZ001  (That is what is refused.)


def test_no_quantile_is_above_the_largest(mq: quivermq.Connection, tmp_path: Path) -> None:
    mq.queue("orders").put_many([bytes(100)] * 10)
    (line,) = contents(tmp_path).topics
    assert (line.sizes.p50, line.sizes.p99, line.size_max) == (100, 100, 100)


def test_a_rate_does_not_drop_where_the_time_begins_and_ends() -> None:
    for width_s in (1, 60):
        seconds = (START // width_s + np.arange(5, 1_003)) * width_s
        each = np.full(len(seconds), 10 * width_s)
        moments = Moments(seconds, np.array([each, each]), width_s)
        figures = MessageFigures("orders", moments, np.zeros(STEPS, np.int64))
        found = contents_of(
            [figures],
            where="here",
            made_at=MADE,
            since=None,
            until=None,
            stored_bytes={"orders": 1, "quiet": 1},
            has_journals=True,
        )
        assert found.throughput.width_s > width_s
        assert found.throughput.rows["orders"] == pytest.approx([10] * len(found.throughput.rows["orders"]))


def test_moments_know_how_long_they_are() -> None:
    seconds = np.arange(START, START + 10_000)
    coarse = Moments.of(seconds, np.ones(10_000, np.int64))
    assert (coarse.width_s, Moments.of(seconds[:9], seconds[:9]).width_s) == (60, 1)
    assert Moments.together([coarse, Moments.of(seconds[:9], seconds[:9])], 1).width_s == 60


def test_a_period_may_begin_within_a_second(
    mq: quivermq.Connection, clock: ManualClock, tmp_path: Path
) -> None:
    orders = mq.queue("orders", "billing")
    orders.put_many([b"x"] * 4)
    first, second, third, fourth = orders.get_many(4)
    first.nack(delay=3600)
    second.reject("early")
    clock.advance(0.6)
    third.nack(delay=3600)
    fourth.reject("late")
    found = contents(tmp_path, TimeRange(START_US + 500_000, START_US + 10_000_000))
    assert {name: sum(row) for name, row in found.failures.rows.items()} == {
        "failed deliveries": 1,
        "dead letters": 1,
    }
    assert [line.reason for line in found.reasons] == ["late"]


def test_a_group_is_told_of_although_its_messages_go_away_meanwhile(
    mq: quivermq.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = mq.queue("orders", "billing")
    orders.put_many([b"x"] * 5)
    orders.ack(orders.get_many(2))

    def gone(_: DirectoryReader, lane: Lane, start: int, end: int) -> Iterator[Frame]:
        raise OffsetOutOfRange(start, start=end, end=end)

    monkeypatch.setattr(DirectoryReader, "frames", gone)
    assert [(line.group, line.lag, line.acks) for line in contents(tmp_path).groups] == [("billing", 3, 0)]


def test_a_dead_letter_of_no_possible_time_does_not_keep_the_page_away(
    mq: quivermq.Connection, tmp_path: Path
) -> None:
    headers = {"quiver-dlq-time": b"9" * 18, "quiver-dlq-timestamp": b"-" + b"9" * 18}
    mq.queue("orders.dlq").put(b"x", headers=headers, timestamp=START_US)
    found = contents(tmp_path)
    assert found.failures.edges[0] <= START < found.failures.edges[-1]
    assert "2023-11-14" in page(found)
    assert second_text(10**15) == "9999-12-31 23:59:59 UTC"
    assert second_text(-(10**15)).endswith("1-01-01 00:00:00 UTC")
