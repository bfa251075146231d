"""Who owns the chunks of a bucket, when transactions of etcd decide it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.etcd_gateway import EtcdGateway, GatewayFault, served
from support.faulty_disk import FaultyDisk
from support.shared import CACHE, LIMITS, TINY, files_of, settle, write

from quivermq.errors import DamagedChunk, NotFound, NotOwner, QuiverError, StoreUnreachable
from quivermq.shared import SharedDisk, SharedLimits, open_shared
from quivermq.shared.chunk import ChunkHead, encode_chunk
from quivermq.shared.etcd import EtcdClient
from quivermq.shared.etcd_chunks import EtcdChunks
from quivermq.shared.memory import MemoryStore, StoreFault, StoreStep
from quivermq.shared.memory_etcd import MemoryEtcd, MemoryEtcdClient
from quivermq.shared.stored_disk import StoredDisk
from quivermq.shared.survey import survey

PREFIX = "/quiver/test/shards/0"


class Cluster:
    """A bucket and etcd, and whoever wants to own what is there."""

    def __init__(self, url: str, gateway: EtcdGateway) -> None:
        self.store = MemoryStore()
        self.gateway = gateway
        self.url = url
        self.opened: list[EtcdChunks] = []

    def chunks(self, owner: str = "a") -> EtcdChunks:
        chunks = EtcdChunks(self.store.beside(), EtcdClient([self.url]), PREFIX, owner=owner)
        self.opened.append(chunks)
        return chunks

    def disk(self, owner: str = "a", limits: SharedLimits = LIMITS) -> SharedDisk:
        return open_shared(self.chunks(owner), CACHE, disk=FaultyDisk(), limits=limits)

    def end_leases(self) -> None:
        """As if every owner had been stopped for long."""
        for lease in list(self.gateway.leases):
            self.gateway.end_lease(lease)

    def names(self, kind: str) -> list[str]:
        return self.store.names(kind)


def latest(chunks: EtcdChunks) -> tuple[int, bytes]:
    """The latest checkpoint, whatever its object is called."""
    stored = chunks.checkpoint()
    assert stored is not None
    return stored.number, stored.data


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    gateway = EtcdGateway()
    with served(gateway) as url:
        cluster = Cluster(url, gateway)
        yield cluster
        gateway.fault = lambda _path, _number: None
        for chunks in cluster.opened:
            with suppress(QuiverError):
                chunks.close()


def test_the_epoch_is_the_revision_that_made_the_owner(cluster: Cluster) -> None:
    first = cluster.chunks()
    assert first.claim() == first.epoch == cluster.gateway.revision
    assert first.is_fresh
    with pytest.raises(NotOwner, match="belongs to a"):
        cluster.chunks("b").claim()
    first.close()
    assert not first.is_fresh
    assert cluster.chunks("b").claim() > first.epoch


def test_chunks_are_read_as_they_were_appended(cluster: Cluster) -> None:
    first = cluster.chunks()
    first.claim()
    for number in range(20):
        first.append(number, b"chunk %d" % number)
    assert list(first.read(5)) == [(number, b"chunk %d" % number) for number in range(5, 20)]
    assert len(cluster.names("chunk/")) == 20


def test_who_lost_its_lease_appends_nothing(cluster: Cluster) -> None:
    first = cluster.chunks("a")
    first.claim()
    first.append(0, b"0")
    first.check_owner(1)
    cluster.end_leases()
    with pytest.raises(NotOwner, match="belongs to nobody now"):
        first.append(1, b"late")
    second = cluster.chunks("b")
    second.claim()
    with pytest.raises(NotOwner, match="belongs to b now"):
        first.append(1, b"late")
    with pytest.raises(NotOwner):
        first.put_checkpoint(1, b"late")
    second.append(1, b"1")
    with pytest.raises(NotOwner):
        first.append(1, b"late")
    with pytest.raises(NotOwner):
        first.check_owner(1)
    assert list(second.read(0)) == [(0, b"0"), (1, b"1")]


def without_answer(
    path: str, fault: GatewayFault, times: int = 1
) -> Callable[[str, int], GatewayFault | None]:
    left = [fault] * times
    return lambda asked, _number: left.pop() if asked == path and left else None


@pytest.mark.parametrize("fault", ["fail", "lose_answer", "unavailable"])
def test_a_transaction_without_an_answer_is_asked_for(cluster: Cluster, fault: GatewayFault) -> None:
    chunks = cluster.chunks()
    cluster.gateway.fault = without_answer("/v3/kv/txn", fault)
    with pytest.raises(StoreUnreachable):
        chunks.claim()
    epoch = chunks.claim()
    acts: list[Callable[[], None]] = [
        lambda: chunks.append(0, b"0"),
        lambda: chunks.put_checkpoint(1, b"c"),
    ]
    for act in acts:
        cluster.gateway.fault = without_answer("/v3/kv/txn", fault)
        with pytest.raises(StoreUnreachable):
            act()
        act()
    chunks.append(1, b"1")
    assert list(chunks.read(1)) == [(1, b"1")]
    assert latest(chunks) == (1, b"c")
    assert chunks.epoch == epoch
    chunks.trim(1, ())
    # Whatever was put and did not count is gone as well.
    assert len(cluster.names("")) == 2


def test_a_checkpoint_of_the_same_number_replaces_the_one_before(cluster: Cluster) -> None:
    chunks = cluster.chunks()
    chunks.claim()
    chunks.append(0, b"0")
    chunks.put_checkpoint(1, b"first")
    # Both are not answered, and one of them was carried out.
    cluster.gateway.fault = without_answer("/v3/kv/txn", "lose_answer")
    with pytest.raises(StoreUnreachable):
        chunks.put_checkpoint(1, b"second")
    chunks.put_checkpoint(1, b"third")
    assert latest(chunks) == (1, b"third")
    chunks.trim(1, ())
    assert len(cluster.names("checkpoint/")) == 1
    assert latest(chunks) == (1, b"third")


def test_a_transaction_that_arrives_late_does_not_change_which_object_is_a_chunk() -> None:
    etcd, faults = MemoryEtcd(), [StoreFault.LATE]

    def late_transaction(step: StoreStep) -> StoreFault | None:
        return faults.pop() if faults and is_claimed and step.name == "/v3/kv/txn" else None

    is_claimed = False
    store = MemoryStore(fault=late_transaction)
    client = MemoryEtcdClient(etcd, store)
    chunks = EtcdChunks(store, client, PREFIX, owner="a")
    chunks.claim()
    is_claimed = True
    with pytest.raises(StoreUnreachable):
        chunks.append(0, b"0")
    chunks.append(0, b"0")
    [decided] = client.range(f"{PREFIX}/chunks/{0:020d}")
    store.deliver_late()
    # It names the object of the attempt before, which is taken away when a checkpoint covers the chunk.
    assert client.range(f"{PREFIX}/chunks/{0:020d}") == [decided]
    chunks.close()


def test_a_lost_answer_counts_also_for_who_lost_the_lease_since(cluster: Cluster) -> None:
    first = cluster.chunks()
    first.claim()
    cluster.gateway.fault = without_answer("/v3/kv/txn", "lose_answer")
    with pytest.raises(StoreUnreachable):
        first.append(0, b"0")
    cluster.end_leases()
    second = cluster.chunks("b")
    second.claim()
    first.append(0, b"0")
    assert list(second.read(0)) == [(0, b"0")]


def test_an_object_that_was_not_put_is_put_again_under_another_name(cluster: Cluster) -> None:
    chunks = cluster.chunks()
    chunks.claim()
    store = chunks._store._store
    assert isinstance(store, MemoryStore)
    store.fault = lambda step: StoreFault.LATE if step.number == 1 else None
    with pytest.raises(StoreUnreachable):
        chunks.append(0, b"0")
    chunks.append(0, b"0")
    store.deliver_late()
    assert len(cluster.names("chunk/")) == 2
    assert list(chunks.read(0)) == [(0, b"0")]


def test_what_is_not_what_was_committed_is_damage(cluster: Cluster) -> None:
    chunks = cluster.chunks()
    chunks.claim()
    for number in range(3):
        chunks.append(number, b"%d" % number)
    [name] = [name for name in cluster.names("chunk/") if cluster.store.objects[name] == b"1"]
    cluster.store.objects[name] = b"x"
    with pytest.raises(DamagedChunk, match="not what was committed"):
        list(chunks.read(0))
    cluster.store.remove([name])
    with pytest.raises(DamagedChunk, match="is not there"):
        list(chunks.read(0))
    del cluster.gateway.keys[f"{PREFIX}/chunks/{1:020d}".encode()]
    with pytest.raises(DamagedChunk, match="later ones are"):
        list(chunks.read(0))


def test_a_disk_over_etcd_is_taken_over_without_its_large_files(cluster: Cluster) -> None:
    first = cluster.disk("a", TINY)
    write(first, "a", b"x" * 1000)
    settle(first)
    seen = files_of(first)
    first.close()
    second = cluster.disk("b", TINY)
    assert second.figures().cache.evicted_bytes == 1000
    # What nobody has fetched is no garbage.
    settle(second)
    write(second, "more", b"")
    second.sync_directory(second.root)
    second.clean()
    assert len(cluster.names("file/")) == 1
    assert files_of(second) == {**seen, "more": b""}
    second.close()
    cluster.store.remove(cluster.names("file/"))
    with pytest.raises(DamagedChunk, match="it is not there, and checkpoint"):
        cluster.disk("c", TINY)


def test_a_disk_over_etcd_goes_from_owner_to_owner(cluster: Cluster) -> None:
    first = cluster.disk("a")
    write(first, "a", b"x" * 2_000_000)
    first.checkpoint()
    write(first, "b", b"y")
    first.sync_directory(first.root)
    seen = files_of(first)
    cluster.end_leases()
    second = cluster.disk("b")
    assert files_of(second) == seen
    write(first, "c", b"late")
    with pytest.raises(NotOwner):
        first.sync_directory(first.root)
    second.checkpoint()
    write(second, "d", b"z")
    second.sync_directory(second.root)
    second.clean()
    # Of the first one only the large file is left.
    assert len(cluster.names("file/")) == len(cluster.names("checkpoint/")) == 1
    assert len(cluster.names("chunk/")) == 1
    seen = files_of(second)
    first.abandon()
    second.close()
    third = cluster.disk("c")
    assert files_of(third) == seen
    third.close()


@pytest.mark.parametrize("fault", ["fail", "lose_answer", "unavailable"])
def test_a_disk_waits_for_etcd_that_stumbles(cluster: Cluster, fault: GatewayFault) -> None:
    cluster.gateway.fault = lambda _path, number: fault if number % 3 == 0 else None
    disk = cluster.disk()
    for n in range(10):
        write(disk, f"{n}", b"%d" % n)
        disk.sync_directory(disk.root)
    cluster.gateway.fault = lambda _path, _number: None
    disk.close()
    again = cluster.disk("b")
    assert files_of(again) == {f"{n}": b"%d" % n for n in range(10)}
    again.close()


def test_a_disk_is_read_beside_its_owner(cluster: Cluster) -> None:
    disk = cluster.disk()
    reader = StoredDisk(cluster.chunks("nobody"), Path("/stored"), limits=LIMITS)
    with pytest.raises(NotFound):
        reader.refresh()
    for number in range(3):
        write(disk, f"a{number}", b"%d" % number)
        disk.sync_directory(disk.root)
        reader.refresh()
        assert files_of(reader) == files_of(disk)
        write(disk, f"b{number}", b"x")
        # The keys go with it, and no chunk is behind it yet.
        assert disk.checkpoint()
        reader.refresh()
        assert files_of(reader) == files_of(disk)
        write(disk, f"c{number}", b"x")
        disk.sync_directory(disk.root)
        disk.clean()
    # Whoever comes now finds what is there, and the owner is who it was.
    late = StoredDisk(cluster.chunks("nobody"), Path("/stored"), limits=LIMITS)
    late.refresh()
    assert files_of(late) == files_of(disk)
    late.close()
    write(disk, "last", b"x")
    disk.close()


def test_what_etcd_says_of_a_chunk_is_compared(cluster: Cluster) -> None:
    disk = cluster.disk()
    for number in range(3):
        write(disk, f"a{number}", b"%d" % number)
        disk.sync_directory(disk.root)
    cluster.store.put("chunk/00000000000000000001-left", b"by a crash")
    chunks = cluster.chunks("nobody")
    assert [(each.kind, str(each.path), each.end) for each in survey(chunks)] == [
        ("orphan", "chunk/00000000000000000001-left", 10)
    ]
    last = chunks.listed()[-1]
    cluster.store.objects[last.name] = encode_chunk(ChunkHead(last.number, 1, bytes(32)), ())
    (damage, _) = survey(chunks)
    assert (damage.kind, str(damage.path), damage.reason) == (
        "damage",
        last.name,
        "it is not what was committed",
    )
    disk.abandon()
