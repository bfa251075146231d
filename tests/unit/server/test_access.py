"""What a key is for: scopes, and the topics its patterns cover."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import Denied
from quivermq.model.names import Pattern, usual_origin
from quivermq.server.access import SCOPES, ApiKey, check_topics, may_see
from quivermq.server.http import Request


def key(*topics: str, scope: str = "read") -> ApiKey:
    return ApiKey("k", scope, topics)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", ["read"]),
        ("consume", ["read", "consume"]),
        ("write", ["read", "consume", "write"]),
        ("admin", ["read", "consume", "write", "admin"]),
    ],
)
def test_each_scope_includes_those_before_it(scope: str, allowed: list[str]) -> None:
    assert [each for each in SCOPES if key(">", scope=scope).has_scope(each)] == allowed


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("orders", "orders"),
        ("orders", "orders.dlq"),
        ("orders.*", "orders.tea"),
        ("orders.*", "orders.*"),
        ("orders.*", "orders.tea.dlq"),
        ("orders.*", "orders.*.dlq"),
        ("orders.>", "orders.tea"),
        ("orders.>", "orders.tea.green"),
        ("orders.>", "orders.*"),
        ("orders.>", "orders.>"),
        ("orders.>", "orders.*.>"),
        ("*.tea", "orders.tea"),
        ("orders.dlq", "orders.dlq"),
        (">", ">"),
        (">", "*"),
        (">", "orders.dlq"),
    ],
)
def test_a_key_is_for_what_its_topics_cover(own: str, asked: str) -> None:
    assert key("other", own).allows(asked, usual_origin(asked))


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("orders", "order"),
        ("orders", "orders.tea"),
        ("orders", "orders.dlq.dlq"),
        ("orders", "*"),
        ("orders", ">"),
        ("orders.*", "orders"),
        ("orders.*", "orders.dlq"),
        ("orders.*", "orders.tea.green"),
        ("orders.*", "orders.>"),
        ("orders.*", ">"),
        ("orders.*", "*.*"),
        ("orders.*", "*.tea"),
        ("orders.>", "orders"),
        ("orders.>", "orders.dlq"),
        ("orders.>", ">"),
        ("orders.dlq", "orders"),
        ("*", ">"),
        ("*", "orders.tea"),
        ("*", "*.*"),
    ],
)
def test_a_key_is_for_nothing_else(own: str, asked: str) -> None:
    assert not key("other", own).allows(asked, usual_origin(asked))


@pytest.mark.parametrize(
    ("own", "topic", "origin", "is_for"),
    [
        ("orders", "orders-failed", "orders", True),
        ("orders", "orders-failed", None, False),
        ("orders.*", "orders.tea-failed", "orders.tea", True),
        ("orders.*", "orders.failed", "orders", False),
        ("orders.failed", "orders.failed", "orders", True),
        ("*.failed", "orders.failed", "orders", True),
        ("orders", "orders.dlq", None, False),
    ],
)
def test_whose_dead_letters_a_topic_has_is_told_and_not_read_from_its_name(
    own: str, topic: str, origin: str | None, is_for: bool
) -> None:
    assert key(own).allows(topic, origin) is is_for


levels = st.sampled_from(["a", "b", "dlq"])
names = st.lists(levels, min_size=1, max_size=4).map(".".join)
patterns = st.builds(
    lambda head, rest: ".".join([*head, *rest]),
    st.lists(st.one_of(levels, st.just("*")), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)


@given(own=patterns, asked=patterns, name=names)
def test_a_pattern_is_allowed_only_when_all_its_topics_are(own: str, asked: str, name: str) -> None:
    if key(own).allows(asked, usual_origin(asked)) and Pattern(asked).matches(name, usual_origin(name)):
        assert key(own).allows(name, usual_origin(name))


def test_topics_in_a_body_are_checked_by_whoever_reads_it() -> None:
    request = Request("POST", "/")
    check_topics(request, ["anything"])
    assert may_see(request, "anything")
    request.key = key("orders.*")
    check_topics(request, ["orders.tea", "orders.*"])
    with pytest.raises(Denied, match="not for >"):
        check_topics(request, ["orders.tea", ">"])
    assert may_see(request, "orders.tea")
    assert not may_see(request, "tea")
