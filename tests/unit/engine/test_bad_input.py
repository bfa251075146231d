"""What a caller can do wrong: an error of the tree, and nothing written."""

from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import Store, accepted, drain, refused

import quivermq


class Thing:
    """Something that nobody expects, and that looks the same in every run."""

    def __repr__(self) -> str:
        return "a thing"


THING = Thing()
NAN, INFINITY = float("nan"), float("inf")
NOT_SECONDS = [-1, -0.001, NAN, INFINITY, -INFINITY, 10**30, 1e300, "5", b"5", [], {}, True, THING, 5j]
NOT_MOMENTS = [NAN, INFINITY, -INFINITY, 10**30, 1e300, "now", b"1", [], True, THING, datetime(2030, 1, 1)]  # noqa: DTZ001
BAD_NAMES = [
    "", ".", "..", "...", "../x", "a/b", "/etc", "a\\b", "a b", "a\n", "\n", "a\0b", "ü", "名", "x" * 250,
    "x" * 100_000, "a:b", "~", None, 5, b"orders", ["orders"], {"a": 1}, ("a",), THING, 1.5, True,
]  # fmt: skip

BAD_PUTS: dict[str, list[Any]] = {
    "value": ["text", None, 5, 1.5, ["x"], {}, THING, True],
    "key": ["text", 5, ["k"], {}, THING, True],
    "headers": [
        {"a": "text"}, {"a": None}, {"a": 5}, {b"a": b"1"}, {1: b"1"}, {None: b"1"}, {"\ud800": b"1"},
        [("a", b"1")], "text", 5, THING, {"a": [b"1"]}, {"h": bytes(2 * 1024 * 1024)},
    ],
    "priority": ["urgent", "", "HIGH", None, 1, b"high", [], {}],
    "ttl": [*NOT_SECONDS, 0],
    "delay": NOT_SECONDS,
    "deliver_at": [*NOT_MOMENTS, 1_700_000_000, -5],
    "timestamp": NOT_MOMENTS,
    "dedup_id": ["", b"x", 5, [], "\ud800", "x" * 100_000, True],
    "dedup_window": [*NOT_SECONDS, 0],
    "partition": [-1, 3, 10**30, "0", 0.0, NAN, b"0", [], True],
    "durability": ["never", "", "FSYNC", 5, b"os", ["os"], {}, True, False],
}  # fmt: skip
TOO_LARGE = bytes(2 * 1024 * 1024 + 1)


def bad_messages(name: str) -> list[dict[str, Any]]:
    return [{"value": b"x"} | {name: bad} for bad in BAD_PUTS[name]]


@pytest.fixture
def settled(faulty_disk: FaultyDisk) -> Iterator[Store]:
    """A store with a topic in use."""
    store = Store(faulty_disk)
    queue = store.queue(partitions=3)
    queue.put_many([b"a", b"b", b"c"])
    queue.put(b"later", delay=600)
    queue.put(b"once", dedup_id="once")
    yield store
    store.close()


@pytest.mark.parametrize("name", BAD_PUTS)
def test_a_bad_put_is_refused_before_anything_is_written(settled: Store, name: str) -> None:
    queue: Any = settled.queue()
    calls = [(bad[name], partial(queue.put, **bad)) for bad in bad_messages(name)]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


@pytest.mark.parametrize(
    "bad", [{"value": TOO_LARGE}, {"value": TOO_LARGE[1:], "key": b"k"}, {"delay": 5, "deliver_at": 1e10}],
    ids=["value", "value and key", "delay and deliver_at"],
)  # fmt: skip
def test_arguments_that_do_not_go_together_are_refused(settled: Store, bad: dict[str, Any]) -> None:
    queue: Any = settled.queue()
    error = refused(settled, lambda: queue.put(**{"value": b"x"} | bad))
    assert isinstance(error, quivermq.MessageTooLarge if "value" in bad else quivermq.InvalidRequest)


@pytest.mark.parametrize("name", BAD_PUTS)
def test_a_bad_put_makes_no_topic(store: Store, name: str) -> None:
    queue: Any = store.queue("new")
    refused(store, lambda: queue.put(**bad_messages(name)[0]))
    assert store.engine.topics() == []


@pytest.mark.parametrize("name", BAD_PUTS)
def test_one_bad_message_spoils_the_batch_before_anything_is_written(settled: Store, name: str) -> None:
    queue: Any = settled.queue()

    def put(bad: dict[str, Any]) -> None:
        durability = bad.pop("durability", None)
        messages = [b"good", quivermq.Message(**bad), quivermq.Message(b"good", priority="high")]
        queue.put_many(messages, durability=durability)

    calls = [(bad[name], partial(put, bad)) for bad in bad_messages(name)]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


@pytest.mark.parametrize("name", BAD_PUTS)
def test_a_bad_put_to_a_full_topic_drops_nothing(store: Store, name: str) -> None:
    queue: Any = store.queue(
        partitions=3, backlog_messages_max=2, backlog_bytes_max=10**9, backlog_policy="drop_oldest"
    )
    queue.put_many([b"a", b"b"])
    refused(store, lambda: queue.put(**bad_messages(name)[0]))
    assert sorted(drain(queue)) == [b"a", b"b"]


BAD_BATCHES = [
    None, 5, b"abc", "abc", bytearray(b"abc"), [None], ["text"], [5], [b"a", "b"], [[b"a"]],
    [{"value": b"a"}], {"a": b"b"}, THING, [b"a", None],
]  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"backlog_bytes_max": 10**6}, {"ttl_ms": 1000}], ids=repr)
def test_a_bad_batch_is_refused(store: Store, settings: dict[str, Any]) -> None:
    store.engine.create_topic("orders", **settings)
    queue: Any = store.queue()
    queue.put(b"first")
    calls = [(batch, partial(queue.put_many, batch)) for batch in BAD_BATCHES]
    assert accepted(store, calls, quivermq.InvalidRequest) == []


@pytest.mark.parametrize("value", [b"", bytearray(b"x"), memoryview(b"x"), memoryview(b"xyz")[::2]])
@pytest.mark.parametrize("settings", [{}, {"backlog_bytes_max": 10**6}, {"ttl_ms": 1000}], ids=repr)
def test_all_that_is_bytes_is_welcome(store: Store, value: Any, settings: dict[str, Any]) -> None:
    store.engine.create_topic("orders", **settings)
    queue: Any = store.queue()
    queue.put(value)
    queue.put_many([value, quivermq.Message(value)])
    queue.put(value, key=b"", headers=UserDict(a=value))
    assert drain(queue) == [bytes(value)] * 4


def test_what_the_caller_changes_later_is_not_changed_in_the_queue(store: Store) -> None:
    queue: Any = store.queue(durability="buffered")
    value, headers = bytearray(b"before"), {"a": b"before"}
    queue.put(value, headers=headers)
    value[:] = b"behind"
    headers["a"] = b"behind"
    message = queue.get()
    assert (message.value, message.headers) == (b"before", {"a": b"before"})


@pytest.mark.parametrize("call", ["create_topic", "queue"])
def test_a_bad_name_is_refused(store: Store, call: str) -> None:
    calls = [(name, partial(getattr(store.engine, call), name)) for name in BAD_NAMES]
    assert accepted(store, calls, quivermq.InvalidName) == []


def test_a_bad_name_of_a_group_is_refused(settled: Store) -> None:
    engine: Any = settled.engine
    calls = [(name, partial(engine.queue, "orders", name)) for name in BAD_NAMES]
    calls += [(name, partial(engine.delete_group, "orders", name)) for name in BAD_NAMES]
    assert accepted(settled, calls, quivermq.InvalidName) == []


@pytest.mark.parametrize("call", ["topic", "alter_topic", "delete_topic", "groups"])
def test_a_bad_name_of_a_topic_to_look_at_is_refused(store: Store, call: str) -> None:
    calls = [(name, partial(getattr(store.engine, call), name)) for name in [*BAD_NAMES, "unknown"]]
    assert accepted(store, calls, quivermq.InvalidName, quivermq.TopicNotFound) == []


def test_a_bad_name_of_a_topic_of_a_group_is_refused(store: Store) -> None:
    engine: Any = store.engine
    calls = [(name, partial(engine.delete_group, name, "default")) for name in [*BAD_NAMES, "unknown"]]
    assert accepted(store, calls, quivermq.InvalidName, quivermq.TopicNotFound) == []


def test_bad_patterns_are_refused(store: Store) -> None:
    patterns = ["a.>.b", "a.*x.ü", ">.a", "a/*", "../*", "* ", "x" * 300 + "*"]
    calls = [(pattern, partial(store.engine.queue, pattern)) for pattern in patterns]
    assert accepted(store, calls, quivermq.InvalidName) == []


ONE_TOPIC_ONLY: dict[str, Callable[[Any], Any]] = {
    "put": lambda q: q.put(b"x"),
    "rich": lambda q: q.put(b"x", key=b"k"),
    "put_many": lambda q: q.put_many([b"x"]),
    "put_frame": lambda q: q.put_frame(b""),
    "seek": lambda q: q.seek("earliest"),
    "read": lambda q: q.read(),
    "peek": lambda q: q.peek(),
    "redrive": lambda q: q.redrive(),
    "dead_letters": lambda q: q.dead_letters(),
    "scheduled": lambda q: q.scheduled(),
    "cancel": lambda q: q.cancel("x"),
}


@pytest.mark.parametrize("call", ONE_TOPIC_ONLY)
def test_what_a_pattern_cannot_do_is_refused_and_not_ignored(store: Store, call: str) -> None:
    queue = store.queue("a.b")
    queue.put(b"x", delay=5)
    queue.put(b"bad")
    queue.reject(queue.get_many(1))
    error = refused(store, lambda: ONE_TOPIC_ONLY[call](store.queue("a.*")))
    assert isinstance(error, quivermq.InvalidRequest)


BAD_SETTINGS: list[dict[str, Any]] = [
    {"unknown": 1},
    {"Partitions": 1}, {"partitions": 0}, {"partitions": -1}, {"partitions": 10**6}, {"partitions": 1.0},
    {"partitions": None}, {"partitions": True}, {"partitions": "many"}, {"partitions": NAN},
    {"durability": "never"}, {"durability": None}, {"durability": 1}, {"ordering": "value"},
    {"ordering": True}, {"lease_ms": 0}, {"lease_ms": -1}, {"lease_ms": None}, {"lease_ms": 2**63},
    {"lease_ms": 1.5}, {"attempts_max": 0}, {"attempts_max": -3}, {"attempts_max": "x"},
    {"backoff_ms": -1}, {"backoff_ms": None}, {"backoff_ms_max": -1},
    {"backoff_ms": 10, "backoff_ms_max": 5}, {"dedup_window_ms": -1}, {"dedup_window_ms": None},
    {"backlog_messages_max": 0}, {"backlog_bytes_max": 0}, {"backlog_bytes_max": []},
    {"backlog_policy": "panic"}, {"message_bytes_max": 0}, {"message_bytes_max": 2**40}, {"ttl_ms": 0},
    {"ttl_ms": -1}, {"dead_letter_expired": 1}, {"dead_letter_expired": None},
    {"priority_weights": (1, 2)}, {"priority_weights": (1, 2, 0)}, {"priority_weights": "lax"},
    {"priority_weights": [1, 2, "x"]}, {"priority_weights": {"high": 1}}, {"priority_weights": None},
    {"segment_bytes": 0}, {"segment_messages": 0}, {"segment_ms": 0}, {"retention_ms": -1},
    {"retention_bytes": 0}, {"retention_messages": 0}, {"segments_max": 0}, {"segments_min": 0},
    {"segments_min": 5, "segments_max": 3}, {"retention_force": "x"}, {"delete_finished": 0},
    {"codec": "rar"}, {"codec": None}, {"cleanup": "never"},
]  # fmt: skip


def test_bad_settings_make_no_topic(settled: Store) -> None:
    create = partial(settled.engine.create_topic, "new")
    calls = [(bad, partial(create, **bad)) for bad in BAD_SETTINGS]
    assert accepted(settled, calls, quivermq.InvalidSettings) == []
    assert settled.engine.topics() == ["orders"]


def test_bad_settings_change_no_topic(settled: Store) -> None:
    before = settled.engine.topic("orders")
    alter = partial(settled.engine.alter_topic, "orders")
    calls = [(bad, partial(alter, **bad)) for bad in BAD_SETTINGS]
    assert accepted(settled, calls, quivermq.InvalidSettings) == []
    assert settled.engine.topic("orders") == before


def test_the_setting_that_is_wrong_is_named(store: Store) -> None:
    with pytest.raises(quivermq.InvalidSettings, match="lease_ms"):
        store.engine.create_topic("t", lease_ms=0)
    with pytest.raises(quivermq.InvalidSettings, match="did you mean partitions"):
        store.engine.create_topic("t", partition=1)  # type: ignore[call-arg]  # That is the mistake.


def test_partitions_cannot_become_fewer(settled: Store) -> None:
    error = refused(settled, lambda: settled.engine.alter_topic("orders", partitions=2))
    assert isinstance(error, quivermq.InvalidSettings)


def test_a_topic_that_exists_is_not_made_again(settled: Store) -> None:
    error = refused(settled, lambda: settled.engine.create_topic("orders", partitions=5))
    assert isinstance(error, quivermq.TopicExists)


GETS: dict[str, Callable[[Any, Any], Any]] = {
    "get": lambda q, timeout: q.get(timeout=timeout),
    "get_many": lambda q, timeout: q.get_many(5, timeout=timeout),
    "pop": lambda q, timeout: q.pop(timeout=timeout),
    "process": lambda q, timeout: q.process(timeout=timeout).__enter__(),
    "stream": lambda q, timeout: next(q.stream(timeout=timeout)),
}


@pytest.mark.parametrize("call", GETS)
def test_a_bad_timeout_is_refused(settled: Store, call: str) -> None:
    calls = [(timeout, partial(GETS[call], settled.queue(), timeout)) for timeout in NOT_SECONDS]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []
    assert settled.queue().stats().in_flight == 0


LEASED_GETS: dict[str, Callable[[Any, Any], Any]] = {
    "get": lambda q, lease: q.get(lease=lease),
    "get_many": lambda q, lease: q.get_many(3, lease=lease),
    "process": lambda q, lease: q.process(lease=lease).__enter__(),
    "stream": lambda q, lease: next(q.stream(lease=lease)),
}


@pytest.mark.parametrize("call", LEASED_GETS)
def test_a_bad_lease_is_refused(settled: Store, call: str) -> None:
    queue = settled.queue()
    calls = [(lease, partial(LEASED_GETS[call], queue, lease)) for lease in [*NOT_SECONDS, 0]]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []
    assert queue.stats().in_flight == 0


def test_a_bad_count_is_refused(settled: Store) -> None:
    counts: list[Any] = [0, -1, None, "5", 1.5, NAN, 10**30, True, [], b"5"]
    calls = [(count, partial(settled.queue().get_many, count)) for count in counts]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


GARBAGE = [
    None, 5, 1.5, "", "garbage", "orders", "orders:0", "orders:0:1:0:xyz", "orders:-1:1:0:1",
    "orders:0:9:0:1", "../x:0:1:0:1", "orders:0:1:99999999999999999999999:1", b"orders:0:1:0:1", True,
    THING, [None], [5], [b"x"], [""], {"a": 1}, "orders:7:1:0:1", "orders:0:1:0:1\n", "ü:0:1:0:1",
    "\ud800",
]  # fmt: skip

SETTLE: dict[str, Callable[[Any, Any], Any]] = {
    "ack": lambda q, x: q.ack(x),
    "nack": lambda q, x: q.nack(x),
    "reject": lambda q, x: q.reject(x),
    "extend": lambda q, x: q.extend(x, 5),
}


@pytest.mark.parametrize("act", SETTLE)
def test_a_garbage_receipt_is_refused(settled: Store, act: str) -> None:
    queue = settled.queue()
    assert queue.get() is not None
    calls = [(receipt, partial(SETTLE[act], queue, receipt)) for receipt in GARBAGE]
    assert accepted(settled, calls) == []
    assert queue.stats().in_flight == 1


@pytest.mark.parametrize("act", SETTLE)
def test_a_receipt_makes_no_group_that_never_was(settled: Store, act: str) -> None:
    message = settled.queue().get()
    assert message is not None
    stranger = settled.queue(group="stranger")
    refused(settled, lambda: SETTLE[act](stranger, message.receipt))
    assert settled.engine.groups("orders") == ["default"]


@pytest.mark.parametrize("act", SETTLE)
def test_a_receipt_of_another_group_is_refused(settled: Store, act: str) -> None:
    message, other = settled.queue().get(), settled.queue(group="other")
    assert message is not None
    assert other.get() is not None
    refused(settled, lambda: SETTLE[act](other, message.receipt))
    assert settled.queue().stats().in_flight == 1
    assert other.stats().in_flight == 1


@pytest.mark.parametrize("act", SETTLE)
@pytest.mark.parametrize("as_receipt", [True, False])
def test_a_message_of_another_topic_is_refused(settled: Store, act: str, as_receipt: bool) -> None:
    message, other = settled.queue().get(), settled.queue("other")
    assert message is not None
    other.put(b"x")
    assert other.get() is not None
    held = message.receipt if as_receipt else message
    refused(settled, lambda: SETTLE[act](other, held))
    assert settled.queue().stats().in_flight == 1


@pytest.mark.parametrize("act", SETTLE)
def test_a_receipt_of_a_topic_that_is_not_there(settled: Store, act: str) -> None:
    error = refused(settled, lambda: SETTLE[act](settled.queue("gone"), "gone:0:1:0:1"))
    assert isinstance(error, quivermq.NotFound | quivermq.Conflict)


def test_one_garbage_receipt_among_good_ones_settles_none(settled: Store) -> None:
    queue = settled.queue()
    messages = queue.get_many(3)
    refused(settled, lambda: queue.ack([messages[0], "garbage", messages[1].receipt]))
    assert queue.stats().in_flight == 3
    queue.ack(messages)


def test_a_bad_delay_of_a_nack_is_refused(settled: Store) -> None:
    queue: Any = settled.queue()
    message = queue.get()
    calls = [(seconds, partial(message.nack, delay=seconds)) for seconds in NOT_SECONDS]
    calls += [(seconds, partial(queue.nack, [message], delay=seconds)) for seconds in NOT_SECONDS]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []
    assert queue.stats().in_flight == 1


def test_a_bad_extension_is_refused(settled: Store) -> None:
    queue: Any = settled.queue()
    message = queue.get()
    calls = [(seconds, partial(message.extend, seconds)) for seconds in [*NOT_SECONDS, 0, None]]
    calls += [(seconds, partial(queue.extend, [message], seconds)) for seconds in [*NOT_SECONDS, 0, None]]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


def test_a_bad_reason_is_refused(settled: Store) -> None:
    queue: Any = settled.queue()
    message = queue.get()
    calls: list[tuple[object, Callable[[], object]]] = []
    for text in (5, b"x", ["x"], THING, True):
        calls += [
            (text, partial(message.nack, reason=text)),
            (text, partial(message.nack, error=text)),
            (text, partial(message.reject, text)),
            (text, partial(message.reject, error=text)),
            (text, partial(queue.nack, message, reason=text)),
            (text, partial(queue.reject, message, text)),
        ]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []
    assert queue.stats().in_flight == 1


BAD_SEEKS: list[dict[str, Any]] = [
    {},
    {"to": "middle"}, {"to": 5}, {"to": ["earliest"]}, {"to": b"earliest"},
    {"to": "earliest", "offset": 0}, {"offset": 0, "timestamp": 0}, {"offset": -1}, {"offset": 10**30},
    {"offset": 99}, {"offset": "0"}, {"offset": 0.0}, {"offset": True}, {"offset": NAN},
    {"timestamp": NAN}, {"timestamp": "now"},
    {"timestamp": datetime(2030, 1, 1)},  # noqa: DTZ001
    {"timestamp": True}, {"to": "earliest", "partition": 3}, {"to": "earliest", "partition": -1},
    {"to": "earliest", "partition": "0"}, {"to": "earliest", "priority": "x"},
    {"to": "earliest", "priority": 5}, {"offset": 0, "priority": "x"}, {"offset": 5, "priority": "high"},
    {"offset": 0, "partition": 9}, {"to": "earliest", "priority": []},
]  # fmt: skip


@pytest.mark.parametrize("group", ["default", "newcomer"])
def test_a_bad_seek_moves_and_makes_nothing(settled: Store, group: str) -> None:
    assert settled.queue().get() is not None
    queue = settled.queue(group=group)
    calls = [(arguments, partial(queue.seek, **arguments)) for arguments in BAD_SEEKS]
    assert accepted(settled, calls) == []
    assert settled.queue().stats().in_flight == 1
    assert settled.engine.groups("orders") == ["default"]


BAD_READS: list[dict[str, Any]] = [
    {"partition": None}, {"partition": 3}, {"partition": -1}, {"partition": "0"}, {"partition": 0.0},
    {"partition": True}, {"start": -1}, {"start": "0"}, {"start": 0.0}, {"start": 10**30}, {"start": NAN},
    {"limit": -1}, {"limit": "5"}, {"limit": 1.5}, {"limit": 10**30}, {"priority": "x"}, {"priority": None},
    {"priority": []}, {"start": 99},
]  # fmt: skip


def test_a_bad_read_is_refused(settled: Store) -> None:
    calls = [(arguments, partial(settled.queue().read, **arguments)) for arguments in BAD_READS]
    assert accepted(settled, calls) == []


@pytest.mark.parametrize("call", ["peek", "dead_letters", "scheduled", "redrive"])
def test_a_bad_limit_is_refused(settled: Store, call: str) -> None:
    look = getattr(settled.queue(), call)
    limits: list[Any] = [-1, "5", 1.5, NAN, True, [], b"1"]
    calls = [(limit, partial(look, limit=limit)) for limit in limits]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


@pytest.mark.parametrize("call", ["redrive", "discard"])
def test_a_filter_that_cannot_be_called_is_refused(settled: Store, call: str) -> None:
    message = settled.queue().get()
    assert message is not None
    message.reject()
    strange: list[Any] = [5, "x", [], {}]
    calls = [(wanted, partial(getattr(settled.queue(), call), wanted)) for wanted in strange]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


def test_a_filter_that_fails_moves_nothing(settled: Store) -> None:
    message = settled.queue().get()
    assert message is not None
    message.reject()
    before = settled.files()
    with pytest.raises(ZeroDivisionError):
        settled.queue().redrive(lambda letter: letter.attempts < 1 // 0)
    assert settled.files() == before


def test_an_unknown_id_cancels_nothing(settled: Store) -> None:
    before = settled.files()
    for given in ("", "x", "1-1-1", "é", "9" * 1000, "-1", "\ud800", "../x"):
        assert settled.queue().cancel(given) is False
    assert settled.files() == before


def test_what_is_no_id_is_refused_or_cancels_nothing(settled: Store) -> None:
    strange: list[Any] = [None, 5, b"x", [], THING]
    for given in strange:
        with suppress(quivermq.InvalidRequest):
            assert settled.queue().cancel(given) is False
    assert settled.queue().stats().delayed == 1


def test_bytes_that_are_no_frame_are_refused(settled: Store) -> None:
    frames: list[Any] = [None, "", 5, b"", b"x", b"x" * 80, b"QVF1" + bytes(200), [], bytearray(3)]
    calls = [(frame, partial(settled.queue().put_frame, frame)) for frame in frames]
    assert accepted(settled, calls, quivermq.InvalidRequest) == []


@pytest.mark.parametrize("path", [None, 5, b"\0", "\0", [], THING], ids=lambda path: f"{path!r:.10}")
def test_a_bad_path_is_refused(path: Any) -> None:
    with pytest.raises(quivermq.QuiverError):
        quivermq.open(path)


@pytest.mark.parametrize("settings", ["x", 5, [("storage", {})], quivermq.StorageSettings()], ids=type)
def test_settings_of_another_type_are_refused(tmp_path: Path, settings: Any) -> None:
    with pytest.raises(quivermq.InvalidRequest):
        quivermq.open(tmp_path / "data", settings)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "settings", [{"storage": 5}, {"storrage": {}}, {"storage": {"durabilty": "os"}}, {5: {}}], ids=str
)
def test_settings_in_a_dict_that_are_none_are_refused(tmp_path: Path, settings: Any) -> None:
    with pytest.raises(quivermq.InvalidSettings):
        quivermq.open(tmp_path / "data", settings)
    assert not (tmp_path / "data").exists()


def test_a_file_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(quivermq.QuiverError):
        quivermq.open(tmp_path / "file")


def test_a_queue_inside_of_a_queue_is_refused(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data"), pytest.raises(quivermq.InvalidRequest):
        quivermq.open(tmp_path / "data" / "topics" / "inner")
