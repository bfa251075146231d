"""What is new since the last look."""

from dataclasses import replace

from quivermq.engine.activity import GroupActivity, Problem, TopicActivity
from quivermq.engine.statistics import Survey
from quivermq.model.stats import Alert, EngineStats, QueueStats, TopicStats
from quivermq.server.figures import next_version


def survey(*topics: str, pending: int = 0, alerts: tuple[Alert, ...] = ()) -> Survey:
    stats = {
        name: TopicStats(name, 1, 10, 100, 0, 0, groups={"g": QueueStats(name, "g", pending=pending)})
        for name in topics
    }
    activity = {name: TopicActivity(10, {"g": GroupActivity(5, 5, 7)}) for name in topics}
    total = EngineStats(stats, 10 * len(topics), 100 * len(topics), 1000, list(alerts))
    return Survey(1, total, activity, [])


EVERYTHING = frozenset({"a", "b", "c"})


def test_the_first_version_has_everything() -> None:
    first = next_version(None, survey("a", "b"))
    full = first.full(first.names(lambda _: True))
    assert (full["version"], full["messages"], sorted(full["topics"])) == (1, 20, ["a", "b"])
    assert full["topics"]["a"]["groups"]["g"]["oldest_unacked_ms"] == 7


def test_only_what_is_different_is_told() -> None:
    first = next_version(None, survey("a", "b"))
    same = next_version(first, survey("a", "b"))
    assert same.changes(EVERYTHING)["topics"] == {}
    moved = next_version(same, survey("a", "b", pending=3))
    assert moved.changes(EVERYTHING)["topics"] == {
        name: {"groups": {"g": {"pending": 3, "backlog": 3}}} for name in ("a", "b")
    }
    assert moved.changes(frozenset("a"))["topics"].keys() == {"a"}
    assert (moved.number, moved.changes(EVERYTHING)["since"]) == (3, 2)


def test_what_came_is_told_whole() -> None:
    first = next_version(None, survey("a", "b"))
    then = next_version(first, survey("a", "b", "c"))
    assert then.changes(EVERYTHING)["topics"] == {"c": then.topics["c"]}
    assert (first.has_removed, then.has_removed) == (True, False)
    assert then.names("b".__eq__) == {"b"}


def test_that_a_topic_is_gone_needs_everything_anew() -> None:
    first = next_version(None, survey("a", "b"))
    then = next_version(first, survey("b"))
    assert then.has_removed
    assert then.full(EVERYTHING)["topics"].keys() == {"b"}
    assert not next_version(then, survey("b")).has_removed


def test_a_group_that_is_gone_is_told() -> None:
    first = next_version(None, survey("a"))
    after = survey("a")
    without = replace(after.stats.topics["a"], groups={})
    stats = replace(after.stats, topics={"a": without})
    then = next_version(first, replace(after, stats=stats))
    assert then.changes(EVERYTHING)["topics"] == {"a": {"groups": {"g": None}}}


def test_alerts_are_told_when_they_are_others() -> None:
    alert = Alert("A", "page", "x", "a")
    first = next_version(None, survey("a"))
    assert "alerts" not in next_version(first, survey("a")).changes(EVERYTHING)
    then = next_version(first, survey("a", alerts=(alert,)))
    assert [each["alert"] for each in then.changes(EVERYTHING)["alerts"]] == ["A"]
    assert then.changes(frozenset("b"))["alerts"] == []


def test_nobody_is_told_of_what_is_not_theirs() -> None:
    alerts = (Alert("A", "page", "x", "a"), Alert("B", "page", "y", "b"), Alert("C", "page", "z"))
    problems = [Problem("lost", "a"), Problem("found", "b"), Problem("full")]
    first = next_version(None, survey("a", "b"))
    then = next_version(first, replace(survey("a", "b", pending=3, alerts=alerts), problems=problems))
    for told in (then.full(frozenset("b")), then.changes(frozenset("b"))):
        assert told["topics"].keys() == {"b"}
        assert (told["messages"], told["bytes"]) == (10, 100)
        assert [each["alert"] for each in told["alerts"]] == ["B", "C"]
        assert [each["message"] for each in told["problems"]] == ["found", "full"]


def test_problems_are_told_when_they_are_others() -> None:
    first = next_version(None, survey("a"))
    then = next_version(first, replace(survey("a"), problems=[Problem("full")]))
    assert [each["message"] for each in then.changes(EVERYTHING)["problems"]] == ["full"]
