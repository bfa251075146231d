import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import strategies as st
from reference import ROOT, settings_page

from quivermq.errors import InvalidSettings
from quivermq.model.topic_settings import TopicSettings, storage_names
from quivermq.settings import StorageSettings
from quivermq.settings.setting import KIB, MIB, settings_of

STORAGE = StorageSettings()
NAMES = list(settings_of(TopicSettings))

# Each setting with a value that is not its default, as text and as it is kept.
OTHERS: dict[str, tuple[str, Any]] = {
    "partitions": ("1024", 1024),
    "spread": ("2", 2),
    "spread_index": ("1", 1),
    "durability": ("os", "os"),
    "ordering": ("key", "key"),
    "lease_ms": ("1", 1),
    "attempts_max": ("none", None),
    "backoff_ms": ("0", 0),
    "backoff_multiplier": ("1.5", 1.5),
    "backoff_ms_max": ("1000", 1000),
    "dedup_window_ms": ("0", 0),
    "dedup_entries_max": ("10", 10),
    "backlog_messages_max": ("10", 10),
    "backlog_bytes_max": ("64MiB", 64 * MIB),
    "backlog_policy": ("drop_oldest", "drop_oldest"),
    "message_bytes_max": ("1 KiB", KIB),
    "ttl_ms": ("5", 5),
    "dead_letter_expired": ("true", True),
    "dead_letters": ("false", False),
    "dead_letter_retention_ms": ("7", 7),
    "dead_letter_suffix": ("-failed", "-failed"),
    "priority_weights": ("1000:2:1", (1000, 2, 1)),
    "priority_age_ms": ("60000", 60_000),
    "segment_bytes": ("1MiB", MIB),
    "segment_messages": ("7", 7),
    "segment_ms": ("7", 7),
    "retention_ms": ("7", 7),
    "retention_bytes": ("1GiB", 1024 * MIB),
    "retention_messages": ("7", 7),
    "segments_max": ("7", 7),
    "segments_min": ("2", 2),
    "retention_force": ("true", True),
    "delete_finished": ("true", True),
    "codec": ("zstd", "zstd"),
    "compression_level": ("3", 3),
    "compression_bytes_min": ("1KiB", KIB),
    "cleanup": ("compact", "compact"),
}

# What a setting cannot be without, and those that stay as the topic was made.
BESIDE = {"spread": {"partitions": 4}, "spread_index": {"partitions": 4, "spread": 2}}
FIXED = {"dead_letter_suffix", "spread", "spread_index"}


def make(given: Any = None, defaults: StorageSettings = STORAGE, **more: object) -> TopicSettings:
    return TopicSettings.make({**(given or {}), **more}, defaults)


def test_the_settings_are_those_of_the_design() -> None:
    assert list(OTHERS) == NAMES


def test_the_defaults_are_those_of_the_design() -> None:
    topic = make()
    assert topic == TopicSettings()
    assert (topic.partitions, topic.durability, topic.ordering) == (1, "fsync", "none")
    assert (topic.lease_ms, topic.attempts_max, topic.ttl_ms) == (30_000, 3, None)
    assert (topic.backoff_ms, topic.backoff_ms_max) == (1000, 60_000)
    assert topic.dedup_window_ms == 300_000
    assert (topic.backlog_messages_max, topic.backlog_bytes_max) == (None, None)
    assert (topic.backlog_policy, topic.cleanup) == ("reject", "delete")
    assert topic.priority_weights == (8, 4, 1)
    assert topic.dead_letter_expired is topic.retention_force is topic.delete_finished is False
    assert {name: getattr(topic, name) for name in storage_names()} == {
        name: getattr(STORAGE, name) for name in storage_names()
    }


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        TopicSettings().partitions = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        TopicSettings(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_one_line_of_doc(name: str) -> None:
    doc = settings_of(TopicSettings)[name].doc
    assert doc.endswith(".")
    assert "\n" not in doc
    assert "|" not in doc, "the page is a Markdown table"


def test_what_a_topic_shares_with_the_storage_is_declared_alike() -> None:
    assert len(storage_names()) == 13
    for name in storage_names():
        assert settings_of(TopicSettings)[name] == settings_of(StorageSettings)[name]


def test_every_setting_is_on_the_page() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    assert page == settings_page()
    section = page.partition("## Settings of a topic")[2]
    assert all(f"| `{name}` |" in section for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_can_be_given_as_text_and_as_a_value(name: str) -> None:
    text, value = OTHERS[name]
    assert value != settings_of(TopicSettings)[name].default
    beside: dict[str, Any] = BESIDE.get(name, {})
    assert getattr(make({name: text, **beside}), name) == value
    assert make({name: text, **beside}) == make({name: value, **beside})
    if name not in FIXED:
        assert make({name: text}) == TopicSettings().changed({name: value})
    assert make({name: value, **beside}) == replace(TopicSettings(), **{name: value, **beside})


def test_over_how_many_shards_is_decided_when_the_topic_is_made() -> None:
    topic = make(partitions=4, spread=2, spread_index=1)
    assert topic.changed({"spread": 2, "spread_index": 1, "partitions": 7}).own_partitions == range(1, 7, 2)
    for name, value in (("spread", 3), ("spread_index", 0)):
        with pytest.raises(InvalidSettings, match="only be set when the topic is created"):
            topic.changed({name: value})


def test_a_topic_has_no_more_shares_than_partitions() -> None:
    with pytest.raises(InvalidSettings, match="2 is more than the 1 partitions"):
        make(spread=2)
    with pytest.raises(InvalidSettings, match="none of the 2 shares"):
        make(partitions=2, spread=2, spread_index=2)


def test_each_share_has_its_partitions_and_all_shares_have_them_all() -> None:
    shares = [make(partitions=7, spread=3, spread_index=index).own_partitions for index in range(3)]
    assert [list(share) for share in shares] == [[0, 3, 6], [1, 4], [2, 5]]
    assert make(partitions=7).own_partitions == make(partitions=7, spread=3).own_partitions == range(7)
    assert make(partitions=7, spread=3, spread_index=1).own_partition(4) == 4
    assert make(partitions=2, spread=2, spread_index=1).own_partition(5) == 1


def test_dead_letters_have_the_share_of_their_topic() -> None:
    made = make(partitions=4, spread=2, spread_index=1).of_dead_letters(make())
    assert made.own_partitions == range(1, 4, 2)


def test_where_dead_letters_go_is_decided_when_the_topic_is_made() -> None:
    topic = make(dead_letter_suffix="-failed")
    assert topic.changed({"dead_letter_suffix": "-failed", "lease_ms": 5}).lease_ms == 5
    with pytest.raises(InvalidSettings, match="only be set when the topic is created"):
        topic.changed({"dead_letter_suffix": ".dlq"})


@pytest.mark.parametrize("suffix", ["", ".", "dlq", "/x", ".a b", "-" + "x" * 50, 5, None, ".dlq\n"])
def test_a_suffix_is_like_the_end_of_a_name(suffix: object) -> None:
    with pytest.raises(InvalidSettings, match="dead_letter_suffix"):
        make(dead_letter_suffix=suffix)


def test_nothing_but_its_own_retention_takes_dead_letters_away() -> None:
    keeps = StorageSettings(
        retention_ms=1, retention_bytes=1, retention_messages=1, segments_max=1, segment_ms=1
    )
    own = make({"delete_finished": True, "retention_force": True, "partitions": 2, "lease_ms": 7}, keeps)
    made = make(partitions=4).of_dead_letters(own)
    assert (made.retention_ms, made.retention_bytes, made.retention_messages) == (None, None, None)
    assert (made.segments_max, made.delete_finished, made.retention_force) == (None, False, False)
    assert (made.partitions, made.lease_ms) == (4, 7)
    assert make(dead_letter_retention_ms=9).of_dead_letters(made).retention_ms == 9
    assert make(partitions=1).of_dead_letters(made).partitions == 4


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("strict", "strict"),
        ("8:4:1", (8, 4, 1)),
        ([3, 2, 1], (3, 2, 1)),
        ((3, 2, 1), (3, 2, 1)),
        ({"low": 1, "high": 1000, "normal": 2}, (1000, 2, 1)),
    ],
)
def test_weights_may_be_written_in_many_ways(given: object, value: object) -> None:
    assert make(priority_weights=given).priority_weights == value


def test_what_is_not_given_comes_from_the_storage_settings() -> None:
    defaults = StorageSettings(durability="os", codec="lz4", segment_bytes=MIB, segments_min=3)
    topic = make({"codec": "zstd"}, defaults)
    assert (topic.durability, topic.codec, topic.segment_bytes, topic.segments_min) == (
        "os",
        "zstd",
        MIB,
        3,
    )
    assert topic.lease_ms == 30_000


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ({"partitions": 0}, "partitions", "0 is not between 1 and 1024"),
        ({"partitions": 1025}, "partitions", "1025 is not between 1 and 1024"),
        ({"partitions": None}, "partitions", "None is not a whole number"),
        ({"partitions": 2.0}, "partitions", "2.0 is not a whole number"),
        ({"partitions": True}, "partitions", "True is not a whole number"),
        ({"partitions": {}}, "partitions", "{} is not a whole number"),
        ({"partitions": "two"}, "partitions", "'two' is not a whole number"),
        ({"spread_index": -1}, "spread_index", "-1 is not between 0"),
        ({"durability": "sync"}, "durability", "'sync' is not one of fsync, os, buffered"),
        ({"ordering": None}, "ordering", "None is not one of none, key"),
        ({"lease_ms": 0}, "lease_ms", "0 is not between 1"),
        ({"lease_ms": "none"}, "lease_ms", "'none' is not a whole number"),
        ({"lease_ms": 2**62}, "lease_ms", "is not between"),
        ({"attempts_max": 0}, "attempts_max", "0 is not between 1"),
        ({"backoff_ms": -1}, "backoff_ms", "-1 is not between 0"),
        ({"dedup_window_ms": None}, "dedup_window_ms", "None is not a whole number"),
        ({"backlog_bytes_max": "5MB"}, "backlog_bytes_max", "unknown unit"),
        ({"ttl_ms": 0}, "ttl_ms", "0 is not between 1"),
        ({"dead_letter_expired": 1}, "dead_letter_expired", "1 is not one of true, false"),
        ({"priority_weights": [8, 4]}, "priority_weights", "each of high, normal, low, such as 8:4:1"),
        ({"priority_weights": [8, 4, 0]}, "priority_weights", "0 is not between 1 and 1000"),
        ({"priority_weights": {"high": 1}}, "priority_weights", "is not strict or a weight for each"),
        ({"priority_weights": None}, "priority_weights", "None is not strict"),
        ({"cleanup": ["delete"]}, "cleanup", "is not one of delete, compact"),
        ({"partition": 1}, "partition", "no such setting; did you mean partitions?"),
        ({"retention_hours": 1}, "retention_hours", "no such setting"),
        ({"fsync_interval_ms": 1}, "fsync_interval_ms", "topics have no such setting"),
        ({"xyz": 1}, "xyz", r"no such setting \("),
        ({"": 1}, "", "no such setting"),
        ({"partitions" * 1000: 1}, ("partitions" * 1000)[:80], "no such setting"),
        ({1: 1}, "int", "the name of a setting is a str"),
        ({None: 1}, "NoneType", "the name of a setting is a str"),
        ([("partitions", 1)], "settings", "is a list and not a mapping"),
        (None, "settings", "is a NoneType and not a mapping"),
        ("partitions=1", "settings", "is a str and not a mapping"),
    ],
)
def test_a_mistake_names_the_key_and_the_origin(given: Any, key: str, reason: str) -> None:
    acts: list[Callable[[], TopicSettings]] = [
        lambda: TopicSettings.make(given, STORAGE, "--set"),
        lambda: TopicSettings().changed(given, "--set"),
        lambda: TopicSettings.from_json(given, "--set"),
    ]
    for act in acts:
        with pytest.raises(InvalidSettings, match=reason) as caught:
            act()
        assert (caught.value.key, caught.value.origin) == (key, "--set")


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=5,
)


@given_by_hypothesis(st.dictionaries(st.sampled_from(NAMES) | st.text() | st.integers(), ANYTHING))
def test_whatever_is_given_is_taken_or_refused(given: Any) -> None:
    try:
        topic = TopicSettings.make(given, STORAGE)
    except InvalidSettings:
        return
    assert TopicSettings.from_json(topic.to_json()) == topic


@given_by_hypothesis(st.sampled_from(NAMES), ANYTHING)
def test_whatever_a_setting_is_made_with_is_taken_or_refused(name: str, value: Any) -> None:
    try:
        topic = TopicSettings(**{name: value})
    except InvalidSettings as error:
        named = error.key
    else:
        named = name
        assert getattr(topic, name) == value
    assert named == name


@pytest.mark.parametrize(
    ("given", "key", "reason"),
    [
        ({"segments_min": 3, "segments_max": 2}, "segments_max", "is 2 and must be at least 3"),
        ({"backoff_ms": 60_001}, "backoff_ms", "backoff_ms_max is 60000 and must be at least 60001"),
        ({"backoff_ms_max": 999}, "backoff_ms_max", "at least 1000, that is backoff_ms"),
    ],
)
def test_values_that_do_not_go_together_are_refused(given: dict[str, Any], key: str, reason: str) -> None:
    acts: list[Callable[[], TopicSettings]] = [
        lambda: make(given),
        lambda: TopicSettings().changed(given),
        lambda: TopicSettings.from_json(given),
        lambda: TopicSettings(**given),
    ]
    for act in acts:
        with pytest.raises(InvalidSettings, match=reason) as caught:
            act()
        assert caught.value.key == key, "the one that was changed is the one to name"


def test_of_values_that_do_not_go_together_the_given_one_is_named() -> None:
    with pytest.raises(InvalidSettings, match="segments_max is 3 and must be at least 5") as caught:
        make({"segments_min": 5}, StorageSettings(segments_max=3))
    assert caught.value.key == "segments_min"
    with pytest.raises(InvalidSettings, match="segments_max is 3 and must be at least 5") as caught:
        make(segments_max=3).changed({"segments_min": 5})
    assert caught.value.key == "segments_min"


def test_a_change_leaves_the_rest_as_it_is() -> None:
    before = make(partitions=3, segments_min=2, segment_bytes=MIB)
    after = before.changed({"lease_ms": "5", "segments_max": 4})
    assert after == make(partitions=3, segments_min=2, segment_bytes=MIB, lease_ms=5, segments_max=4)
    assert before.lease_ms == 30_000
    assert before.changed({}) == before


def test_partitions_can_only_grow() -> None:
    topic = make(partitions=3)
    assert topic.changed({"partitions": 3}) == topic
    assert topic.changed({"partitions": "4"}).partitions == 4
    with pytest.raises(InvalidSettings, match="2 is less than 3: a topic cannot lose partitions") as caught:
        topic.changed({"partitions": 2}, "PATCH")
    assert (caught.value.key, caught.value.origin) == ("partitions", "PATCH")


def test_the_logs_of_a_topic_have_its_settings_and_the_rest_of_the_storage() -> None:
    given = {name: OTHERS[name][1] for name in storage_names()}
    defaults = StorageSettings(linger_ms=77, frame_bytes_max=8 * MIB, durability="buffered")
    assert make(given).storage(defaults) == replace(defaults, **given)
    assert TopicSettings().storage(StorageSettings()) == StorageSettings()


def test_a_message_must_fit_into_a_frame() -> None:
    for defaults in (STORAGE, StorageSettings(frame_bytes_max=8 * MIB)):
        largest = defaults.frame_bytes_max - 4 * KIB
        assert make({"message_bytes_max": largest}, defaults).message_bytes_max == largest
        with pytest.raises(InvalidSettings, match="frame_bytes_max is") as caught:
            TopicSettings.make({"message_bytes_max": largest + 1}, defaults, "PATCH")
        assert (caught.value.key, caught.value.origin) == ("message_bytes_max", "PATCH")
        with pytest.raises(InvalidSettings, match="frame_bytes_max is") as caught:
            TopicSettings(message_bytes_max=largest + 1).storage(defaults)
        assert caught.value.key == "message_bytes_max"


def test_json_gives_back_the_same() -> None:
    for topic in (
        TopicSettings(),
        make({name: value for name, (_, value) in OTHERS.items()}),
        make(priority_weights="strict"),
    ):
        document = topic.to_json()
        assert list(document) == NAMES
        assert TopicSettings.from_json(json.loads(json.dumps(document))) == topic


def test_what_json_leaves_out_is_a_default() -> None:
    assert TopicSettings.from_json({"partitions": 2}) == TopicSettings(partitions=2)
    assert TopicSettings.from_json({}) == TopicSettings()


def test_a_level_must_be_one_of_the_codec() -> None:
    assert TopicSettings(codec="zstd", compression_level=22).compression_level == 22
    with pytest.raises(InvalidSettings, match="compression_level"):
        TopicSettings(codec="gzip", compression_level=10)
    with pytest.raises(InvalidSettings, match="compression_level"):
        StorageSettings(codec="gzip", compression_level=10)


@pytest.mark.parametrize(("raw", "value"), [("1.5", 1.5), (3, 3.0), (2.25, 2.25), ("4", 4.0)])
def test_a_multiplier_may_have_a_fraction(raw: object, value: float) -> None:
    made = TopicSettings.make({"backoff_multiplier": raw}, StorageSettings())
    assert made.backoff_multiplier == value
    assert TopicSettings.from_json(made.to_json()) == made


@pytest.mark.parametrize("raw", [0.5, "x", True, None, "1e3", float("nan"), 10**30, 10**400])
def test_a_wrong_multiplier_is_refused(raw: object) -> None:
    with pytest.raises(InvalidSettings, match="backoff_multiplier"):
        TopicSettings.make({"backoff_multiplier": raw}, StorageSettings())
