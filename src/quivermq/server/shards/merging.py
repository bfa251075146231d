"""Answers of all shards as one."""

from collections.abc import Iterable, Mapping
from typing import Any


def merged_topics(answers: Iterable[Mapping[str, Any]], limit: int | None) -> dict[str, Any]:
    """The topics of all shards by name; a wide one once, with what its parts have together."""
    found: dict[str, dict[str, Any]] = {}
    has_more = False
    for answer in answers:
        has_more = has_more or "next" in answer
        for topic in answer["topics"]:
            name = topic["name"]
            found[name] = added(found[name], topic) if name in found else topic
    names = sorted(found)
    shown = names[:limit]
    # A shard that has more has at least `limit` of its own, so these are the first of all.
    rest = {"next": shown[-1]} if shown and (has_more or len(shown) < len(names)) else {}
    return {"topics": [found[name] for name in shown], **rest}


def merged_stats(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of all shards together. The answers are in the order of the shards."""
    whole: dict[str, Any] = {
        "topics": {},
        "messages": 0,
        "bytes": 0,
        "free_bytes": None,
        "problems": [],
        "alerts": [],
    }
    for shard, answer in enumerate(answers):
        whole["messages"] += answer["messages"]
        whole["bytes"] += answer["bytes"]
        known = [each for each in (whole["free_bytes"], answer["free_bytes"]) if each is not None]
        whole["free_bytes"] = min(known, default=None)
        whole["problems"] += [_placed(shard, "message", each) for each in answer["problems"]]
        whole["alerts"] += [_placed(shard, "summary", each) for each in answer["alerts"]]
        for name, topic in answer["topics"].items():
            whole["topics"][name] = (
                added(whole["topics"][name], topic) if name in whole["topics"] else topic
            )
    return whole


def _placed(shard: int, words: str, trouble: Mapping[str, Any]) -> Mapping[str, Any]:
    """A problem or an alert with the shard in its words, where no topic says which one it is."""
    return (
        trouble if trouble["topic"] is not None else {**trouble, words: f"shard {shard}: {trouble[words]}"}
    )


def added(one: Any, other: Any) -> Any:
    """Two figures of the same thing on two shards as one: counts are added, ages are of the oldest."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {
            name: _added_field(name, one.get(name), other.get(name))
            for name in dict.fromkeys([*one, *other])
        }
    if _is_number(one) and _is_number(other):
        return one + other
    return other if one is None else one


def _added_field(name: str, one: Any, other: Any) -> Any:
    if name.startswith("oldest") and _is_number(one) and _is_number(other):
        # A moment is older when it is smaller, a duration when it is larger.
        return min(one, other) if name.endswith("_at") else max(one, other)
    return added(one, other)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
