"""The checkpoint of a stream, and what each batch may read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import InvalidRequest
from quivermq.model.lanes import Lane
from quivermq.spark.source.frontier import TopicOffsets, begin_of, from_json, shared, to_json

NORMAL, HIGH, TENTH = Lane("t", 2, "normal"), Lane("t", 2, "high"), Lane("t", 10, "normal")


def test_offsets_have_one_order_as_text() -> None:
    topic = TopicOffsets(5, {TENTH: 1, NORMAL: 2, HIGH: 3}, {HIGH: 1}, {TENTH: 8, NORMAL: 7})
    offsets = {"t": topic, "a": TopicOffsets(6)}
    text = json.dumps(to_json(offsets))
    assert text == (
        '{"a": {"created_us": 6, "partitions": {}}, "t": {"created_us": 5, "partitions":'
        ' {"2": {"high": 3, "normal": 2}, "10": {"normal": 1}}, "begins": {"2": {"high": 1}},'
        ' "appended_us": {"2": {"normal": 7}, "10": {"normal": 8}}}}'
    )
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


@pytest.mark.parametrize(
    "document", [{"t": {"0": 1}}, {"t": 1}, {"t": {"created_us": 1, "partitions": {"x": {"a": 1}}}}]
)
def test_a_foreign_checkpoint_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        from_json(document)


def test_where_a_batch_begins() -> None:
    start = {"t": TopicOffsets(5, {NORMAL: 7})}
    end = TopicOffsets(5, {NORMAL: 9, HIGH: 4, TENTH: 30}, {TENTH: 20})
    assert [begin_of(start, "t", end, lane) for lane in (NORMAL, HIGH, TENTH)] == [7, 0, 20]
    made_again = TopicOffsets(6, {NORMAL: 9})
    assert begin_of(start, "t", made_again, NORMAL) == 0


def test_a_first_batch_begins_where_it_began() -> None:
    asked_again = {"t": TopicOffsets(5, {NORMAL: 30, HIGH: 2}, {NORMAL: 30, HIGH: 2})}
    end = TopicOffsets(5, {NORMAL: 9, HIGH: 4}, {NORMAL: 7})
    assert [begin_of(asked_again, "t", end, lane) for lane in (NORMAL, HIGH)] == [7, 2]
    # An earlier release went on telling where a lane began.
    later = {"t": TopicOffsets(5, {NORMAL: 9}, {NORMAL: 7})}
    assert begin_of(later, "t", TopicOffsets(5, {NORMAL: 12}, {NORMAL: 7}), NORMAL) == 9


def test_a_checkpoint_of_an_earlier_release_is_read() -> None:
    assert from_json({"t": {"created_us": 5, "partitions": {"2": {"normal": 3}}}}) == {
        "t": TopicOffsets(5, {NORMAL: 3})
    }


@given(st.lists(st.integers(0, 1000), max_size=6), st.integers(1, 2000))
def test_a_limit_is_shared(lags: list[int], rows_max: int) -> None:
    by_lane = {Lane("t", number, "normal"): lag for number, lag in enumerate(lags)}
    shares = shared(by_lane, rows_max)
    assert sum(shares.values()) == min(rows_max, sum(lags))
    assert all(0 <= shares[lane] <= lag for lane, lag in by_lane.items())


def test_a_short_lane_does_not_wait_for_a_long_one() -> None:
    assert shared({NORMAL: 1_000_000, HIGH: 1}, 10) == {NORMAL: 9, HIGH: 1}
