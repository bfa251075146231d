"""Answers of all shards as one."""

from typing import Any

from quivermq.server.shards.merging import added, merged_stats, merged_topics


def topic(name: str, messages: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "messages": messages, "dead_letters_of": None, **more}


def test_topics_are_in_order_and_wide_ones_there_once() -> None:
    group = {"lag": 2, "oldest_unacked_ms": 5, "oldest_unacked_at": 100, "paused": False}
    other = {"lag": 3, "oldest_unacked_ms": 9, "oldest_unacked_at": 90, "paused": False}
    answers: list[dict[str, Any]] = [
        {"topics": [topic("c", 1), topic("wide", 2, groups={"g": group})]},
        {"topics": [topic("a", 3), topic("wide", 4, groups={"g": other, "h": group})]},
    ]
    whole = {"lag": 5, "oldest_unacked_ms": 9, "oldest_unacked_at": 90, "paused": False}
    assert merged_topics(answers, None) == {
        "topics": [topic("a", 3), topic("c", 1), topic("wide", 6, groups={"g": whole, "h": group})]
    }


def test_a_list_that_is_cut_says_where_to_go_on() -> None:
    answers: list[dict[str, Any]] = [
        {"topics": [topic("a", 1), topic("d", 1)], "next": "d"},
        {"topics": [topic("b", 1)]},
    ]
    assert merged_topics(answers, 2) == {"topics": [topic("a", 1), topic("b", 1)], "next": "b"}
    assert merged_topics([{"topics": [topic("a", 1)]}, {"topics": []}], 2) == {"topics": [topic("a", 1)]}
    assert merged_topics([], 2) == {"topics": []}


def test_figures_are_added() -> None:
    one = {
        "topics": {"a": {"messages": 1}},
        "messages": 1,
        "bytes": 10,
        "free_bytes": 7,
        "problems": [{"topic": None, "message": "p"}],
        "alerts": [],
    }
    two = {
        "topics": {"a": {"messages": 2}, "b": {"messages": 3}},
        "messages": 5,
        "bytes": 20,
        "free_bytes": 5,
        "problems": [],
        "alerts": [{"topic": "a", "summary": "x"}, {"topic": None, "summary": "y"}],
    }
    assert merged_stats([one, two]) == {
        "topics": {"a": {"messages": 3}, "b": {"messages": 3}},
        "messages": 6,
        "bytes": 30,
        "free_bytes": 5,
        "problems": [{"topic": None, "message": "shard 0: p"}],
        "alerts": [{"topic": "a", "summary": "x"}, {"topic": None, "summary": "shard 1: y"}],
    }


def test_what_is_no_number_is_taken_from_whoever_has_it() -> None:
    assert added({"a": None, "b": "x"}, {"a": 1, "b": "y", "c": True}) == {"a": 1, "b": "x", "c": True}
