"""What a new topic is made with."""

from pathlib import Path
from typing import Any

import pytest

import quivermq
from quivermq.errors import InvalidName, InvalidSettings
from quivermq.settings import Settings, settings_from
from quivermq.topic.defaults import TopicDefaults, load_settings


def defaults(topics: dict[str, Any], **sections: Any) -> TopicDefaults:
    return TopicDefaults(settings_from({"topics": topics, **sections}))


def test_without_rules_a_topic_has_the_defaults() -> None:
    assert TopicDefaults(Settings()).make("orders", {}) == quivermq.TopicSettings()


def test_what_is_given_counts_more_than_any_rule() -> None:
    made = defaults({"lease_ms": 5, "attempts_max": 9}).make("orders", {"lease_ms": 7})
    assert (made.lease_ms, made.attempts_max) == (7, 9)


def test_a_rule_for_topics_counts_more_than_storage() -> None:
    rules = defaults({"retention_ms": "7d"}, storage={"retention_ms": 1, "codec": "zstd"})
    made = rules.make("orders", {})
    assert (made.retention_ms, made.codec) == (7 * 24 * 3600 * 1000, "zstd")


# From the most general to the most specific, all of which stand for events.eu.new.
CHAIN = [
    ">",
    "*.>",
    "*.*.new",
    "*.eu.>",
    "*.eu.*",
    "events.>",
    "events.*.new",
    "events.eu.*",
    "events.eu.new",
]


@pytest.mark.parametrize("count", range(1, len(CHAIN) + 1))
def test_the_most_specific_pattern_counts(count: int) -> None:
    patterns = {pattern: {"lease_ms": number} for number, pattern in enumerate(CHAIN[:count], 1)}
    # The order of the file has no say.
    turned = dict(reversed(list(patterns.items())))
    for given in (patterns, turned):
        assert defaults({"lease_ms": 99, **given}).make("events.eu.new", {}).lease_ms == count


def test_rules_add_up_setting_by_setting() -> None:
    wide, narrow = {"partitions": 4, "lease_ms": 2}, {"lease_ms": 3}
    rules = defaults({"lease_ms": 1, "events.>": wide, "events.*": narrow})
    made = {topic: rules.make(topic, {}) for topic in ("orders", "events.a", "events.a.b")}
    assert [(each.lease_ms, each.partitions) for each in made.values()] == [(1, 1), (3, 4), (2, 4)]


def test_a_rule_for_one_topic_is_for_that_one() -> None:
    rules = defaults({"orders": {"partitions": 3}})
    assert [rules.make(topic, {}).partitions for topic in ("orders", "orders.eu")] == [3, 1]


def test_dead_letters_are_ruled_only_by_who_asks_for_them() -> None:
    rules = defaults({"retention_ms": 1000, "*.>": {"ttl_ms": 5}, "orders.dlq": {"lease_ms": 7}})
    made = rules.make("orders.dlq", {}, origin="orders")
    assert (made.retention_ms, made.ttl_ms, made.lease_ms) == (None, None, 7)


def test_a_weight_is_no_pattern() -> None:
    made = defaults({"priority_weights": {"high": 3, "normal": 2, "low": 1}}).make("orders", {})
    assert made.priority_weights == (3, 2, 1)


MISTAKES = [
    ({"lese_ms": 5}, "topics.lese_ms", "did you mean lease_ms?"),
    ({"lease_ms": 0}, "topics.lease_ms", "0 is not between"),
    ({"lease_ms": "soon"}, "topics.lease_ms", "30s, 5m, 12h or 7d"),
    ({"events.*": 5}, "topics.events.*", "topics have no such setting"),
    ({"events.*": {"lese_ms": 5}}, 'topics."events.*".lese_ms', "did you mean lease_ms?"),
    ({"events.*": {"lease_ms": 0}}, 'topics."events.*".lease_ms', "0 is not between"),
    ({"events.>.x": {"lease_ms": 5}}, "topics.events.>.x", "no pattern"),
    ({"a b": {"lease_ms": 5}}, "topics.a b", "no pattern"),
    ({"": {"lease_ms": 5}}, "topics.", "there is no such setting"),
    ({"backoff_ms": 120_000}, "topics.backoff_ms", "must be at least"),
    ({"message_bytes_max": "1GiB"}, "topics.message_bytes_max", "frame_bytes_max"),
    ({"backoff_ms_max": 10, "backoff_ms": 5, "a": {"backoff_ms": 11}}, 'topics."a".backoff_ms', "at least"),
]


@pytest.mark.parametrize(("topics", "key", "reason"), MISTAKES)
def test_a_mistake_is_named(tmp_path: Path, topics: dict[str, Any], key: str, reason: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        quivermq.open(tmp_path / "data", {"topics": topics})
    assert (caught.value.key, caught.value.origin) == (key, "arguments")
    assert reason in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_the_file_and_the_environment_say_the_same_things(tmp_path: Path) -> None:
    path = tmp_path / "quiver.toml"
    path.write_text(
        '[topics]\nlease_ms = "10s"\nattempts_max = 4\n[topics."events.*"]\npartitions = 4\nlease_ms = 1\n'
    )
    loaded = load_settings(
        toml=path, environ={"QUIVER_TOPICS__LEASE_MS": "20s", "QUIVER_TOPICS__TTL_MS": "none"}
    )
    rules = TopicDefaults(loaded.settings)
    assert (rules.make("orders", {}).lease_ms, rules.make("events.a", {}).lease_ms) == (20_000, 1)
    told = {each.key: (each.value, each.origin) for each in rules.values()}
    assert told["topics.lease_ms"] == (20_000, "environment QUIVER_TOPICS__LEASE_MS")
    assert told["topics.attempts_max"] == (4, str(path))
    assert told['topics."events.*".partitions'] == (4, str(path))
    assert told["topics.codec"] == ("none", "storage.codec")
    assert told["topics.ordering"] == ("none", "default")


def test_a_mistake_in_the_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "quiver.toml"
    path.write_text('[topics."events.*"]\npartitoins = 4\n')
    with pytest.raises(InvalidSettings) as caught:
        load_settings(toml=path)
    assert (caught.value.key, caught.value.origin) == ('topics."events.*".partitoins', str(path))
    with pytest.raises(InvalidSettings, match="QUIVER_TOPICS__LESE_MS"):
        load_settings(environ={"QUIVER_TOPICS__LESE_MS": "1"})


def test_a_mistake_that_another_source_overrules_is_named_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "quiver.toml"
    path.write_text('[topics]\nlease_ms = "soon"\n')
    with pytest.raises(InvalidSettings) as caught:
        load_settings(toml=path, environ={"QUIVER_TOPICS__LEASE_MS": "5s"})
    assert (caught.value.key, caught.value.origin) == ("topics.lease_ms", str(path))
    with pytest.raises(InvalidSettings, match="QUIVER_TOPICS__LEASE_MS"):
        load_settings(environ={"QUIVER_TOPICS__LEASE_MS": "soon"}, arguments={"topics.lease_ms": 5})
    # Only together they have to go together.
    path.write_text('[topics]\nbackoff_ms = "2m"\n')
    loaded = load_settings(toml=path, environ={"QUIVER_TOPICS__BACKOFF_MS_MAX": "3m"})
    assert TopicDefaults(loaded.settings).make("orders", {}).backoff_ms == 120_000


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[topics."events.*"]\nbackoff_ms = "2m"\n', 'topics."events.*".backoff_ms'),
        ('[topics."a b"]\nlease_ms = 5\n', "topics.a b"),
    ],
)
def test_a_rule_that_cannot_be_names_the_file(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "quiver.toml"
    path.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load_settings(toml=path)
    assert (caught.value.key, caught.value.origin) == (key, str(path))


def test_what_arguments_say_of_a_pattern_is_added_to_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "quiver.toml"
    path.write_text('[topics."events.*"]\npartitions = 4\nlease_ms = 1\n')
    loaded = load_settings(toml=path, arguments={"topics.events.*": {"lease_ms": 2}})
    made = TopicDefaults(loaded.settings).make("events.a", {})
    assert (made.partitions, made.lease_ms) == (4, 2)


def test_weights_by_name_take_the_place_of_a_word() -> None:
    by_name = {"high": 3, "normal": 2, "low": 1}
    loaded = load_settings(
        environ={"QUIVER_TOPICS__PRIORITY_WEIGHTS": "strict"},
        arguments={"topics.priority_weights": by_name},
    )
    assert TopicDefaults(loaded.settings).make("orders", {}).priority_weights == (3, 2, 1)


def test_of_dead_letters_it_is_told_that_no_rule_for_topics_counts() -> None:
    rules = defaults({"lease_ms": 5, "orders.dlq": {"partitions": 4}})
    told = {each.setting.name: each.value for each in rules.of("orders.dlq")}
    assert (told["lease_ms"], told["partitions"]) == (30_000, 4)


def test_what_one_topic_would_be_made_with_is_told() -> None:
    rules = defaults({"lease_ms": 5, "events.*": {"partitions": 4}})
    told = {each.setting.name: (each.key, each.value) for each in rules.of("events.a")}
    assert told["lease_ms"] == ("topics.lease_ms", 5)
    assert told["partitions"] == ('topics."events.*".partitions', 4)
    assert dict(told).keys() == rules.make("events.a", {}).to_json().keys()
    with pytest.raises(InvalidName):
        list(rules.of("a/b"))


def test_dead_letters_follow_their_topic_and_no_rule_for_topics(tmp_path: Path) -> None:
    tree = {"topics": {"retention_ms": 1, "ttl_ms": 60_000, "dead_letter_retention_ms": "30d"}}
    with quivermq.open(tmp_path / "data", tree) as mq:
        orders = mq.queue("orders")
        orders.put(b"x")
        orders.reject(orders.get_many(1))
        made = mq.topic("orders.dlq").settings
    assert (made.retention_ms, made.ttl_ms) == (30 * 24 * 3600 * 1000, None)


def test_a_queue_makes_its_topics_by_them(tmp_path: Path) -> None:
    tree = {"topics": {"attempts_max": 7, "events.*": {"partitions": 3, "message_bytes_max": 10}}}
    with quivermq.open(tmp_path / "data", tree) as mq:
        mq.queue("events.a").put(b"x")
        mq.create_topic("events.b", partitions=2)
        with pytest.raises(quivermq.MessageTooLarge):
            mq.queue("events.c").put(b"x" * 11)
        assert mq.topics() == ["events.a", "events.b"]
        made = [mq.topic(name).settings for name in mq.topics()]
        assert [(each.partitions, each.attempts_max) for each in made] == [(3, 7), (2, 7)]
        mq.alter_topic("events.a", attempts_max=1)
    # What there is already does not change because the rules do.
    with quivermq.open(tmp_path / "data", {"topics": {"attempts_max": 9}}) as mq:
        assert [mq.topic(name).settings.attempts_max for name in mq.topics()] == [1, 7]
