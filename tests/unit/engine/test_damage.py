"""Damaged files: the partition concerned says so, and everything else goes on."""

from pathlib import Path

import pytest
from support.faulty_disk import FaultyDisk
from unit.engine.store import DATA, Store, drain

import quivermq

pytestmark = pytest.mark.damages


@pytest.fixture
def store(faulty_disk: FaultyDisk) -> Store:
    """Six messages in each of two partitions and in another topic, each in a frame of its own."""
    store = Store(faulty_disk)
    store.engine.create_topic("orders", partitions=2, segment_messages=2)
    for n in range(6):
        for partition in range(2):
            store.queue().put(b"%d" % n, partition=partition)
        store.queue("other").put(b"%d" % n)
    return store


def flip(store: Store, path: str, position: int = 100) -> None:
    """Reopen with one byte of a file changed."""
    store.engine.close()
    store.disk.flip(DATA / path, position)
    store.open_again(store.disk)


SECOND = "topics/orders/p0/normal/00000000000000000002.log"


def take_all(queue: quivermq.Queue) -> tuple[list[tuple[int, bytes]], quivermq.QuiverError | None]:
    taken: list[tuple[int, bytes]] = []
    try:
        while (message := queue.get()) is not None:
            taken.append((message.partition, message.value))
            message.ack()
    except quivermq.QuiverError as error:
        return taken, error
    return taken, None


def test_the_others_go_on(store: Store) -> None:
    flip(store, SECOND)
    assert drain(store.queue("other")) == [b"%d" % n for n in range(6)]
    taken, error = take_all(store.queue())
    assert isinstance(error, quivermq.Corruption)
    assert error.path == DATA / SECOND
    assert [value for partition, value in taken if partition == 1] == [b"%d" % n for n in range(6)]
    assert [value for partition, value in taken if partition == 0] == [b"0", b"1", b"2"]
    store.queue().put(b"new", partition=1)
    assert take_all(store.queue())[0] == [(1, b"new")]
    store.engine.close()


def test_reading_says_so(store: Store) -> None:
    flip(store, SECOND)
    queue = store.queue()
    with pytest.raises(quivermq.Corruption):
        queue.read(partition=0)
    assert len(queue.read(partition=0, limit=2)) == 2
    assert len(queue.read(partition=1)) == 6
    store.engine.close()


def test_verify_finds_it_while_in_use(store: Store) -> None:
    flip(store, SECOND)
    findings = [f for f in store.engine.verify().findings if f.kind == "damage"]
    assert [finding.path for finding in findings] == [DATA / SECOND]
    store.engine.close()


def test_nothing_behind_the_damage_is_lost_by_a_repair(store: Store) -> None:
    flip(store, SECOND)
    take_all(store.queue())
    store.engine.close()
    quivermq.repair(DATA, disk=store.disk)
    store.open_again(store.disk)
    taken, error = take_all(store.queue())
    assert error is None
    assert [value for partition, value in taken if partition == 0][-2:] == [b"4", b"5"]
    store.engine.close()


def test_figures_and_maintenance_do_not_fail(store: Store) -> None:
    flip(store, SECOND)
    store.queue().get()
    store.pass_time(60)
    assert store.engine.stats().topics["orders"].messages == 12
    store.queue().stats()
    store.engine.close()


def test_a_damaged_journal_stops_its_group_alone(store: Store) -> None:
    for group in ("a", "b"):
        for _ in range(6):
            message = store.queue("other", group).get()
            assert message is not None
            message.ack()
    flip(store, "groups/a/other/p0/00000000000000000000.log")
    assert store.queue("other", "b").get() is None
    assert drain(store.queue("other", "c")) == [b"%d" % n for n in range(6)]
    with pytest.raises(quivermq.QuiverError):
        store.queue("other", "a").get()
    assert sorted(drain(store.queue(group="b"))) == sorted([b"%d" % n for n in range(6)] * 2)
    store.engine.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 999}', b"\xff"], ids=repr)
def test_a_damaged_settings_file_stops_its_topic_alone(store: Store, content: bytes) -> None:
    store.engine.close()
    path = DATA / "topics/orders/topic.json"
    store.disk.remove(path)
    file = store.disk.create(path)
    file.append([content])
    file.close()
    store.open_again(store.disk)
    assert drain(store.queue("other")) == [b"%d" % n for n in range(6)]
    with pytest.raises(quivermq.QuiverError):
        store.queue().get()
    with pytest.raises(quivermq.QuiverError):
        store.queue().put(b"x")
    assert bytes(store.files()[path]) == content, "the evidence was overwritten"
    store.engine.close()


def test_a_failed_sync_fences_the_partition_until_it_is_reopened(store: Store) -> None:
    queue = store.queue()
    store.disk.fail_sync("*/orders/p0/normal/*")
    with pytest.raises(quivermq.FsyncFailed):
        queue.put(b"x", partition=0)
    with pytest.raises(quivermq.StorageFailed):
        queue.put(b"x", partition=0)
    queue.put(b"fine", partition=1)
    store.queue("other").put(b"fine")
    assert b"fine" in drain(store.queue("other"))
    store.engine.close()
    store.open_again(store.disk)
    store.queue().put(b"y", partition=0)
    store.engine.close()


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with quivermq.open(data) as mq:
        mq.queue("orders").put(b"x")
    (data / "topics" / "note.txt").write_text("mine")
    (data / "topics" / "empty").mkdir()
    (data / "topics" / "orders" / "lost+found").mkdir()
    (data / "groups").mkdir(exist_ok=True)
    (data / "groups" / "note.txt").write_text("mine")
    (data / "note.txt").write_text("mine")
    with quivermq.open(data) as mq:
        assert mq.topics() == ["orders"]
        assert drain(mq.queue("orders")) == [b"x"]
    assert (data / "topics" / "note.txt").read_text() == "mine"
