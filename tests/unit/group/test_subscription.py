"""What a member wants to read."""

import pytest

from quivermq.errors import InvalidName, InvalidRequest
from quivermq.group.member import Subscription
from quivermq.model.names import usual_origin

CATALOGUE = ["orders", "orders.eu", "orders.eu.late", "mails", "mails.dlq"]


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        (["orders"], {"orders"}),
        (["orders", "nowhere"], {"orders"}),
        (["orders.*"], {"orders.eu"}),
        (["orders.>", "mails"], {"orders.eu", "orders.eu.late", "mails"}),
        (["*"], {"orders", "mails"}),
        (["mails.dlq"], {"mails.dlq"}),
    ],
)
def test_topics_are_found_by_name_and_by_pattern(topics: list[str], found: set[str]) -> None:
    wanted = Subscription(topics, 10)
    assert wanted.found_in(CATALOGUE, usual_origin) == found
    assert {topic for topic in CATALOGUE if wanted.matches(topic, usual_origin(topic))} == found


def test_a_topic_that_does_not_exist_yet_is_asked_for() -> None:
    assert Subscription(["later"], 10).matches("later", None)


@pytest.mark.parametrize("topics", [[], ["a"] * 11])
def test_none_and_too_many_are_refused(topics: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="1 to 10"):
        Subscription(topics, 10)


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 300, "a.>.b", "a b.*"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(InvalidName):
        Subscription(["good", name], 10)


def test_the_order_of_topics_means_nothing() -> None:
    assert Subscription(["a", "b.*"], 10) == Subscription(["b.*", "a"], 10)
    assert hash(Subscription(["a", "b.*"], 10)) == hash(Subscription(["b.*", "a"], 10))
    assert Subscription(["a"], 10) != Subscription(["b"], 10)
