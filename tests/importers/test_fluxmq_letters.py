"""Dead letters of FluxMQ, which lie in queues of their own."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support import flux_files as flux
from support.flux_files import Rec
from support.sources import DISK, offsets, topic_named

from quivermq.importers.fluxmq import open_source
from quivermq.importers.model import Death, text_identity


def letter(value: bytes, queue: str = "orders", headers: Mapping[str, bytes] | None = None) -> Rec:
    own = {
        "_topic": b"$dlq/orders",
        "_id": b"new-" + value,
        "_state": b"dlq",
        "_dlq_original_queue": queue.encode(),
        "_dlq_original_topic": b"$queue/orders/eu",
        "_dlq_original_id": b"old-" + value,
        "_dlq_group": b"workers",
        "_dlq_delivery_count": b"5",
        "_dlq_moved_at": b"2026-01-01T00:00:01Z",
        "content-type": b"text/plain",
    }
    return Rec(value, b"", {**own, **(headers or {})})


@pytest.fixture
def source_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source")
    flux.write_segment(path / "queues" / "orders", 0, flux.batch(0, flux.values(0, 3)))
    return path


def name_letter_queues(path: Path, **queues: str) -> None:
    configs = [
        {"Name": name, "DLQConfig": {"Enabled": True, "Topic": topic}} for name, topic in queues.items()
    ]
    flux.write_json(path / "config" / "queues.json", {"version": 2, "configs": configs})


def test_dead_letters_belong_to_their_queue(source_path: Path) -> None:
    flux.write_segment(source_path / "queues/$dlq/orders", 0, flux.batch(0, [letter(b"a"), letter(b"b")]))
    source = open_source(source_path, DISK)
    [orders] = source.topics
    assert orders.name == "orders"
    assert offsets(list(orders.items())) == [0, 1, 2]
    first, second = orders.dead_letters()
    assert (first.identity, first.id, first.value) == (0, "new-a", b"a")
    assert first.dead == Death(
        original_id="old-a", attempts=5, group="workers", time_us=1_767_225_601_000_000
    )
    assert first.headers == {"_topic": b"$queue/orders/eu", "content-type": b"text/plain"}
    assert not first.is_consumed
    assert (second.identity, second.value) == (1, b"b")
    assert source.findings.count == 0
    assert orders.size_bytes > 500
    assert len(orders.witnesses) == 2


def test_dead_letters_of_a_queue_that_is_gone_are_still_its_own(source_path: Path) -> None:
    flux.write_segment(source_path / "queues/$dlq/gone/by", 0, flux.batch(0, [letter(b"a", "gone/by")]))
    source = open_source(source_path, DISK)
    assert [topic.name for topic in source.topics] == ["gone/by", "orders"]
    gone = topic_named(source.topics, "gone/by")
    assert list(gone.items()) == []
    assert gone.groups == []
    assert [item.value for item in gone.dead_letters()] == [b"a"]
    assert list(topic_named(source.topics, "orders").dead_letters()) == []


def test_one_queue_may_hold_the_dead_letters_of_many(source_path: Path) -> None:
    flux.write_segment(source_path / "queues/events", 0, flux.batch(0, flux.values(0, 1)))
    mixed = [letter(b"a", "orders"), letter(b"b", "events"), letter(b"c", "unknown"), Rec(b"d")]
    flux.write_segment(source_path / "queues/graveyard", 0, flux.batch(0, mixed))
    name_letter_queues(source_path, orders="graveyard", events="graveyard")
    source = open_source(source_path, DISK)
    assert [topic.name for topic in source.topics] == ["events", "orders"]
    # What does not say whose it is, or names a queue nobody knows, is not lost either.
    events = list(topic_named(source.topics, "events").dead_letters())
    orders = list(topic_named(source.topics, "orders").dead_letters())
    assert [item.value for item in events] == [b"b", b"c", b"d"]
    assert [item.value for item in orders] == [b"a"]
    assert all(item.dead is not None for item in events + orders)


def test_letters_of_two_places_have_identities_of_their_own(source_path: Path) -> None:
    flux.write_segment(source_path / "queues/$dlq/orders", 0, flux.batch(0, [letter(b"a")]))
    flux.write_segment(source_path / "queues/graveyard", 0, flux.batch(0, [letter(b"b")]))
    name_letter_queues(source_path, orders="graveyard")
    [orders] = open_source(source_path, DISK).topics
    assert {item.value: item.identity for item in orders.dead_letters()} == {
        b"a": 0,
        b"b": text_identity("graveyard\n0"),
    }


def test_a_queue_that_gets_letters_besides_its_own_messages_keeps_its_own(source_path: Path) -> None:
    mixed = [Rec(b"own"), letter(b"a"), Rec(b"own too")]
    flux.write_segment(source_path / "queues/alerts", 0, flux.batch(0, mixed))
    name_letter_queues(source_path, orders="alerts")
    source = open_source(source_path, DISK)
    assert [topic.name for topic in source.topics] == ["alerts", "orders"]
    alerts = topic_named(source.topics, "alerts")
    assert [item.value for item in alerts.items()] == [b"own", b"own too"]
    assert list(alerts.dead_letters()) == []
    assert [item.value for item in topic_named(source.topics, "orders").dead_letters()] == [b"a"]


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("_dlq_delivery_count", b"many", "attempts"),
        ("_dlq_moved_at", b"yesterday", "time_us"),
        ("_dlq_group", b"", "group"),
        ("_dlq_original_id", b"", "original_id"),
    ],
)
def test_what_a_letter_does_not_tell_well_is_not_known(
    source_path: Path, name: str, content: bytes, field: str
) -> None:
    flux.write_segment(
        source_path / "queues/$dlq/orders", 0, flux.batch(0, [letter(b"a", headers={name: content})])
    )
    [orders] = open_source(source_path, DISK).topics
    [item] = orders.dead_letters()
    assert item.dead is not None
    assert getattr(item.dead, field) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"configs":7}', '{"configs":[7,{"Name":1,"DLQConfig":7}]}'])
def test_settings_that_make_no_sense_do_no_harm(source_path: Path, text: str) -> None:
    path = flux.write_json(source_path / "config/queues.json", {})
    path.write_text(text)
    source = open_source(source_path, DISK)
    assert [topic.name for topic in source.topics] == ["orders"]
    assert {each.path for each in source.findings.kept} == {path}
    assert source.findings.damages == (text in ("{", "[]"))
