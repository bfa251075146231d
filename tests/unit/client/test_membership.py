"""A member of a group: what it commits, and how it gets, gives up and loses partitions."""

import json
from typing import Any

import pytest
from support.manual_clock import ManualClock
from unit.client.flows import Reply, Script, answer, error

from quivermq.client.consuming.membership import Membership
from quivermq.client.consuming.options import ConsumerOptions
from quivermq.client.consuming.reading import Tenure
from quivermq.client.core.call import Answer, Call
from quivermq.client.core.retry import Retry
from quivermq.client.core.topics import TopicCalls
from quivermq.errors import Closing, Fenced
from quivermq.group.assignment import TopicPartition
from quivermq.helping import Condition

ZERO, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
JOINED = answer({"member_id": "m", "generation": 1})
FENCED = error("fenced", 409)
GONE = error("topic_not_found", 404)


class Member:
    """A membership, and what it started to fetch."""

    def __init__(self, **options: Any) -> None:
        self.tenures: list[Tenure] = []
        wish = ConsumerOptions(["orders", "other"], "billing", **options)
        calls = TopicCalls(Retry(0), ManualClock())
        self.membership = Membership(calls, wish, Condition(), self.tenures.append)

    def rebalance(self, *replies: Reply) -> list[str]:
        """What it asked for, of replies one after the other."""
        return told(self.membership.rebalance(), *replies)

    def commit(self, *replies: Reply) -> list[Any]:
        """What it committed, call by call."""
        script = Script(*replies)
        script.run(self.membership.commit())
        return [
            {(each["topic"], each["priority"]): each["offset"] for each in json.loads(call.body)["offsets"]}
            for call in script.calls
        ]


def told(flow: Any, *replies: Reply) -> list[str]:
    script = Script(*replies)
    script.run(flow)
    return [call.path.removeprefix("/v1/groups/billing/") for call in script.calls]


def synced(*assignment: TopicPartition, revoked: tuple[TopicPartition, ...] = ()) -> Answer:
    return answer(
        {
            "generation": 1,
            "assignment": [each._asdict() for each in assignment],
            "revoked": [each._asdict() for each in revoked],
        }
    )


def offsets(topic: str, committed: int | None, end: int) -> Answer:
    lane = {"topic": topic, "partition": 0, "priority": "normal", "start": 0}
    return answer({"offsets": [{**lane, "offset": committed, "end": end}]})


def reading_orders(committed: int | None = None, **options: Any) -> Member:
    member = Member(**options)
    asked = member.rebalance(JOINED, synced(ZERO), offsets("orders", committed, 7))
    assert asked == ["join", "sync", "offsets"]
    return member


def test_a_beginning_at_the_end_is_committed_although_nothing_was_read() -> None:
    committed = reading_orders(reset="latest").commit(answer(status=204))
    # A lane in which there is nothing has an end, too, before which everything new will lie.
    assert committed == [{("orders", "normal"): 7, ("orders", "high"): 0, ("orders", "low"): 0}]


def test_a_beginning_that_would_be_the_same_again_is_not_committed() -> None:
    assert reading_orders(reset="earliest").commit() == []


def test_what_the_broker_knows_is_not_committed() -> None:
    assert reading_orders(7).commit() == []


@pytest.mark.parametrize("mistake", [Fenced("too late"), ValueError("a bug")])
def test_a_member_that_was_thrown_out_joins_again_whatever_its_callback_raises(mistake: Exception) -> None:
    heard: list[Any] = []

    def on_revoked(partitions: list[TopicPartition]) -> None:
        # For a commit it is too late, which is not worth a call.
        heard.append((partitions, member.commit()))
        raise mistake

    member = reading_orders(on_revoked=on_revoked, reset="latest")
    member.membership.is_to_sync = True
    with pytest.raises(type(mistake)):
        member.rebalance(FENCED)
    assert heard == [([ZERO], [])]
    assert member.membership.assignment == []
    assert member.rebalance(JOINED, synced(ZERO), offsets("orders", 3, 7)) == ["join", "sync", "offsets"]
    assert member.membership.assignment == [ZERO]


def test_a_partition_is_given_up_whatever_a_callback_raises() -> None:
    def on_revoked(_: list[TopicPartition]) -> None:
        raise ValueError("a bug")

    member = reading_orders(on_revoked=on_revoked)
    member.membership.is_to_sync = True
    with pytest.raises(ValueError, match="a bug"):
        member.rebalance(synced(revoked=(ZERO,)))
    assert member.membership.assignment == []
    assert member.rebalance(synced()) == ["sync"]


def test_a_partition_that_comes_back_is_not_read_by_those_who_read_it_before() -> None:
    member = reading_orders()
    member.membership.is_to_sync = True
    asked = member.rebalance(synced(revoked=(ZERO,)), synced(ZERO), offsets("orders", 3, 7))
    assert asked == ["sync", "sync", "offsets"]
    assert [member.membership.reads(tenure) for tenure in member.tenures] == [False, True]


def test_a_member_that_is_closed_while_it_joins_leaves() -> None:
    member = Member()

    def join(_: Call) -> Answer:
        assert told(member.membership.leave()) == []
        return JOINED

    left: list[Any] = []

    def leave(call: Call) -> Answer:
        left.append(json.loads(call.body))
        return answer(status=204)

    with pytest.raises(Closing):
        member.rebalance(join, leave)
    assert left == [{"member_id": "m"}]
    assert member.membership.member is None


@pytest.mark.parametrize("moment", ["sync", "offsets"])
def test_a_member_that_is_closed_while_it_takes_over_gets_nothing(moment: str) -> None:
    member = Member()

    def closing(reply: Answer) -> Reply:
        def close(_: Call) -> Answer:
            assert told(member.membership.leave(), answer(status=204)) == ["leave"]
            return reply

        return close

    replies: list[Reply] = [JOINED, synced(ZERO), offsets("orders", 3, 7)]
    number = ["join", "sync", "offsets"].index(moment)
    reply = replies[number]
    assert isinstance(reply, Answer)
    replies[number] = closing(reply)
    with pytest.raises(Closing):
        member.rebalance(*replies)
    assert (member.membership.member, member.membership.assignment, member.tenures) == (None, [], [])


def test_a_topic_that_was_deleted_does_not_keep_others_from_being_committed() -> None:
    member = Member(reset="latest")

    def show(call: Call) -> Answer:
        return offsets(call.query["topic"], None, 7)

    member.rebalance(JOINED, synced(ZERO, OTHER), show, show)

    def commit(call: Call) -> Answer:
        named = {each["topic"] for each in json.loads(call.body)["offsets"]}
        return GONE if "other" in named else answer(status=204)

    assert not member.membership.is_to_sync
    whole, *parts = member.commit(*[commit] * 7)
    assert len(whole) == len(parts) == 6
    assert member.membership.is_to_sync
    # What is left is only of the topic that is gone.
    assert {topic for each in member.commit(*[commit] * 4) for topic, _ in each} == {"other"}


def test_a_topic_that_is_not_there_to_be_read_is_a_reason_to_sync() -> None:
    member = reading_orders()
    assert not member.membership.is_to_sync
    script = Script(GONE)
    assert script.run(member.membership.fetch(ZERO)) is False
    assert member.membership.is_to_sync


def test_a_lane_that_was_sought_meanwhile_is_not_begun_anew() -> None:
    member = reading_orders()

    def fetch(_: Call) -> Answer:
        member.membership.seek("orders", 0, 5, "high")
        return error("offset_out_of_range", 416, offset=0, start=2, end=9)

    empty = answer(None)
    script = Script(fetch, empty, empty, empty)
    assert script.run(member.membership.fetch(ZERO)) is True
    assert member.membership.position("orders", 0, "high") == 5
