"""What clients of a cluster were told is held against what they were told before."""

import pytest

from quivermq.chaos import Violation
from quivermq.chaos.cluster_load import Acknowledged, ClusterHistory, PartitionOf, expect_retryable
from quivermq.chaos.http_clients import HttpReply

LANE = PartitionOf("orders", 0)


def put(value: str, offset: int) -> tuple[list[str], list[dict[str, object]], float]:
    return [value], [{"topic": "orders", "partition": 0, "offset": offset}], 0.0


def page(end: int, *messages: tuple[int, str]) -> dict[str, object]:
    return {"end": end, "messages": [{"offset": offset, "value": value} for offset, value in messages]}


def test_an_offset_belongs_to_one_message() -> None:
    history = ClusterHistory()
    history.note_put(*put("a", 0))
    history.note_read(LANE, page(1, (0, "a")), 0)
    with pytest.raises(Violation, match="is b, and was a before"):
        history.note_put(*put("b", 0))
    with pytest.raises(Violation, match="is c, and was a before"):
        history.note_read(LANE, page(1, (0, "c")), 0)


def test_a_read_has_what_was_put_before_it() -> None:
    history = ClusterHistory()
    assert history.last_put(LANE) is None
    history.note_put(*put("a", 4))
    assert history.last_put(LANE) == 4
    with pytest.raises(Violation, match=r"4 of .* was put, and a read ends at 4"):
        history.note_read(LANE, page(4), 4)


def test_what_was_finished_before_somebody_asked_does_not_come_again() -> None:
    history = ClusterHistory()
    history.note_settled("ack", ["a"])
    asked = len(history.finished)
    history.note_settled("ack", ["b"])
    history.check_delivered([{"value": "b"}, {"value": "c"}], asked)
    with pytest.raises(Violation, match="delivered again"):
        history.check_delivered([{"value": "a"}], asked)


def test_what_was_put_later_lies_behind() -> None:
    history = ClusterHistory()
    history.put = {
        "first": Acknowledged(LANE, 1, 1.0, 2.0),
        "beside": Acknowledged(LANE, 0, 1.5, 3.0),
        "behind": Acknowledged(LANE, 2, 2.5, 4.0),
    }
    history.check_order()
    history.put["too early"] = Acknowledged(LANE, 3, 0.0, 0.5)
    with pytest.raises(Violation, match="offset 3"):
        history.check_order()


def test_only_what_can_be_asked_again_is_an_answer_of_trouble() -> None:
    expect_retryable(HttpReply(503, {"error": {"code": "unavailable", "retryable": True}}, {}))
    for status, document in ((500, {"error": {"code": "storage_failed", "retryable": False}}), (502, b"")):
        with pytest.raises(Violation, match="was refused"):
            expect_retryable(HttpReply(status, document, {}))
