"""Chunks in a bucket, and in etcd which of them count.

    <prefix>/owner         who it is, under its lease; the revision that made it is the epoch
    <prefix>/chunks/<n>    the object that is chunk n, its size, its checksum, and the chain behind it
    <prefix>/checkpoint    the object that is the latest checkpoint, and the number that it covers

Objects have names that are never used twice, so no put that is late or repeated can change anything. One
transaction decides: if the owner is still that of my epoch, and the chunk has no object yet, it has mine.
Time decides only who may try: an owner that was stopped for longer than its lease finds another epoch.
"""

import json
from collections.abc import Collection, Iterable, Iterator

from crc32c import crc32c

from quivermq.clock import Clock, SystemClock
from quivermq.errors import NotOwner, StoreUnreachable
from quivermq.shared.checkpoint import CHECKPOINT_BYTES_MAX
from quivermq.shared.chunk import CHUNK_BYTES_MAX, chain_of, damaged
from quivermq.shared.chunks import ListedChunk, StoredCheckpoint
from quivermq.shared.counting import CountingStore, RequestKind, Requests
from quivermq.shared.etcd import EtcdClient, EtcdKey, changed_at, created_at, delete_keys, put_key
from quivermq.shared.fetching import fetched
from quivermq.shared.lease import KeptLease
from quivermq.shared.naming import CHECKPOINT, CHUNK, FILE, first_number, unique
from quivermq.shared.objects import ObjectStore, needed, needed_range

LEASE_S = 5


class EtcdChunks:
    """The chunks of one disk. `owner` says to people who has it, an address for instance.

    Disks of one process may share a `lease`, which is then the caller's to keep and to end.
    """

    def __init__(
        self,
        store: ObjectStore,
        etcd: EtcdClient,
        prefix: str,
        *,
        owner: str,
        lease_s: int = LEASE_S,
        lease: KeptLease | None = None,
        readers: int = 8,
        clock: Clock | None = None,
    ) -> None:
        self._store = CountingStore(store)
        self._etcd = etcd
        self._prefix = prefix
        self._owner = owner
        self._lease_s = lease_s
        self._readers = readers
        self._clock = clock or SystemClock()
        self._epoch = 0
        self._lease = lease
        self._is_shared = lease is not None
        # The chunk that is on its way, or the hash of the checkpoint, and every object it was put as.
        self._sent: tuple[int, list[str]] = (-1, [])
        self._sent_checkpoint: tuple[bytes, list[str]] = (b"", [])
        # Objects of chunks and checkpoints, to be taken away when they are covered.
        self._chunk_objects: dict[int, list[str]] = {}
        self._old_checkpoints: list[str] = []
        # Every one that may be the latest.
        self._checkpoints: list[str] = []

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def requests(self) -> dict[RequestKind, Requests]:
        return self._store.requests

    @property
    def is_fresh(self) -> bool:
        """Whether nobody else can be the owner, by this machine's own clock."""
        return self._lease is not None and self._lease.is_fresh

    def claim(self) -> int:
        lease = self._own_lease()
        self._etcd.transact(
            [created_at(self._owner_key, 0)],
            [put_key(self._owner_key, self._owner.encode(), lease=lease.id)],
        )
        # Looked at in any case: an attempt before this one may have been carried out.
        owner = self._owner_now()
        if owner is None:
            raise StoreUnreachable("the owner is gone just now: claim it again")
        if owner.lease != lease.id:
            raise NotOwner(f"{self._prefix} belongs to {owner.value.decode(errors='replace')}")
        self._epoch = owner.create_revision
        return self._epoch

    def _own_lease(self) -> KeptLease:
        """A lease to claim under. Nothing of an earlier disk of this process is left under it."""
        lease = self._lease
        if lease is not None and self._is_shared:
            if lease.is_lost:
                raise NotOwner("the lease of this process has ended: claim under another one")
            if not lease.is_fresh:
                raise StoreUnreachable("the lease of this process is not fresh: claim it again")
            owner = self._owner_now()
            if owner is not None and owner.lease == lease.id:
                # What that one had on its way may arrive yet: it needs an epoch that is over.
                self._release(owner.create_revision)
            return lease
        if lease is not None and not lease.is_fresh:
            lease.let_go()
            lease = None
        if lease is None:
            lease = self._lease = KeptLease(self._etcd, self._lease_s, self._clock)
        return lease

    def _release(self, epoch: int) -> None:
        self._etcd.transact([created_at(self._owner_key, epoch)], [delete_keys(self._owner_key)])

    def append(self, number: int, chunk: bytes) -> None:
        if self._sent[0] != number:
            self._sent = (number, [])
        names = self._sent[1]
        # Known before it is put: one that arrives late has to be found again, to be taken away.
        names.append(unique(CHUNK, self._epoch))
        self._chunk_objects[number] = names
        self._store.put(names[-1], chunk)
        key = self._chunk_key(number)
        value = {
            "object": names[-1],
            "bytes": len(chunk),
            "crc32c": crc32c(chunk),
            "chain": chain_of(chunk).hex(),
        }
        if self._decide([created_at(key, 0)], [put_key(key, json.dumps(value).encode())]):
            return
        # Not now, or by an attempt whose answer was lost.
        found = self._etcd.range(key)
        if not (found and json.loads(found[0].value)["object"] in names):
            raise self._not_owner(f"chunk {number} is not this one's")

    def check_owner(self, number: int) -> None:
        if self._etcd.range(self._chunk_key(number)):
            raise self._not_owner(f"chunk {number} is not this one's")

    def _decide(self, compare: list[dict[str, object]], success: list[dict[str, object]]) -> bool:
        """Whether it was done, which is for the owner alone."""
        return (
            self._etcd.transact([created_at(self._owner_key, self._epoch), *compare], success) is not None
        )

    def _not_owner(self, reason: str) -> NotOwner | StoreUnreachable:
        owner = self._owner_now()
        if owner is not None and owner.create_revision == self._epoch:
            return StoreUnreachable(f"{reason}, though the owner is the same: try again")
        who = "nobody" if owner is None else owner.value.decode(errors="replace")
        return NotOwner(f"{self._prefix} belongs to {who} now: {reason}; open the queue anew to go on")

    def read(self, start: int) -> Iterator[tuple[int, bytes]]:
        keys = self._etcd.range(self._chunk_key(start), f"{self._prefix}/chunks0")
        for expected, key in enumerate(keys, start):
            if key.key != self._chunk_key(expected):
                raise damaged(self._chunk_key(expected), "it is not there, but later ones are")
        # Looked at behind the keys: a checkpoint takes away those that it covers. An owner's is its own.
        if not self._epoch and self.checkpoint_number() > start + len(keys):
            raise damaged(self._chunk_key(start + len(keys)), "it is not there, but a checkpoint covers it")
        numbered = fetched(enumerate(keys, start), lambda item: self._chunk(*item), self._readers)
        for (number, _), data in numbered:
            yield number, data

    def _chunk(self, number: int, key: EtcdKey) -> bytes:
        value = json.loads(key.value)
        data = needed(self._store, value["object"], CHUNK_BYTES_MAX)
        # The chain says all that the checksum says; that one is for those who only look.
        if len(data) != value["bytes"] or chain_of(data).hex() != value["chain"]:
            raise damaged(value["object"], "it is not what was committed")
        if self._epoch:
            # Whoever only reads takes nothing away.
            self._chunk_objects[number] = [value["object"]]
        return data

    def checkpoint(self) -> StoredCheckpoint | None:
        found = self._etcd.range(self._checkpoint_key)
        if not found:
            return None
        value = json.loads(found[0].value)
        name = value["object"]
        return StoredCheckpoint(value["number"], needed(self._store, name, CHECKPOINT_BYTES_MAX), name)

    def checkpoint_number(self) -> int:
        found = self._etcd.range(self._checkpoint_key)
        return int(json.loads(found[0].value)["number"]) if found else 0

    def put_checkpoint(self, number: int, data: bytes) -> None:
        digest = chain_of(data)
        if self._sent_checkpoint[0] != digest:
            self._sent_checkpoint = (digest, [])
        names = self._sent_checkpoint[1]
        before = self._etcd.range(self._checkpoint_key)
        old = json.loads(before[0].value)["object"] if before else None
        if old in names:
            # An earlier attempt was carried out, and its answer lost.
            self._settle_checkpoint(old)
            return
        names.append(unique(CHECKPOINT, self._epoch))
        self._checkpoints += [names[-1]] if old is None or old in self._checkpoints else [old, names[-1]]
        self._store.put(names[-1], data)
        value = json.dumps({"object": names[-1], "number": number}).encode()
        is_done = self._decide(
            # One that comes late must not put back what another one has replaced.
            [changed_at(self._checkpoint_key, before[0].mod_revision if before else 0)],
            [
                put_key(self._checkpoint_key, value),
                delete_keys(self._chunk_key(0), self._chunk_key(number)),
            ],
        )
        if not is_done:
            raise self._not_owner(f"checkpoint {number} is not this one's")
        self._settle_checkpoint(names[-1])

    def _settle_checkpoint(self, latest: str) -> None:
        # None of the others, nor of the attempts that came to nothing, can become the latest any more.
        self._old_checkpoints += [name for name in self._checkpoints if name != latest]
        self._checkpoints = [latest]

    def trim(self, number: int, keep: Collection[int]) -> None:  # noqa: ARG002 - The epoch decides, no chunk.
        # Their keys went with the checkpoint.
        covered = [each for each in self._chunk_objects if each < number]
        names = [name for each in covered for name in self._chunk_objects[each]]
        self._store.remove([*names, *self._old_checkpoints])
        self._old_checkpoints.clear()
        for each in covered:
            del self._chunk_objects[each]

    def put_file(self, data: bytes) -> str:
        name = unique(FILE, self._epoch)
        self._store.put(name, data)
        return name

    def get_file(self, name: str, bytes_max: int) -> bytes:
        return needed(self._store, name, bytes_max)

    def get_file_range(self, name: str, start: int, length: int) -> bytes:
        return needed_range(self._store, name, start, length)

    def listed(self) -> list[ListedChunk]:
        keys = self._etcd.range(self._chunk_key(0), f"{self._prefix}/chunks0")
        values = ((int(key.key.rpartition("/")[2]), json.loads(key.value)) for key in keys)
        return [ListedChunk(n, value["object"], bytes.fromhex(value["chain"])) for n, value in values]

    def sizes(self) -> dict[str, int]:
        return self._store.sizes("")

    def left_files(self) -> list[str]:
        # Once a checkpoint of this epoch covers all that came before, chunks and checkpoints are as old.
        left = [name for kind in (CHUNK, CHECKPOINT) for name in self._store.names(kind)]
        return [
            *(name for name in left if first_number(name) < self._epoch),
            *(name for name in self._store.names(FILE) if first_number(name) <= self._epoch),
        ]

    def remove_files(self, names: Iterable[str]) -> None:
        self._store.remove(names)

    def close(self) -> None:
        try:
            if self._lease is not None and self._is_shared:
                if self._epoch:
                    self._release(self._epoch)
            elif self._lease is not None:
                self._lease.end()
        finally:
            self._etcd.close()
            self._store.close()

    @property
    def _owner_key(self) -> str:
        return f"{self._prefix}/owner"

    @property
    def _checkpoint_key(self) -> str:
        return f"{self._prefix}/checkpoint"

    def _chunk_key(self, number: int) -> str:
        return f"{self._prefix}/chunks/{number:020d}"

    def _owner_now(self) -> EtcdKey | None:
        found = self._etcd.range(self._owner_key)
        return found[0] if found else None
