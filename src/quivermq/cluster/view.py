"""`ClusterView`: what is known of a cluster at one moment, made of its keys in etcd. Never changed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.placement import Candidate, placed, ranking
from quivermq.shared.etcd import EtcdKey


class BrokerInfo(NamedTuple):
    """A broker that is there."""

    id: str
    url: str
    version: str
    capacity: int = 1
    is_leaving: bool = False

    def encoded(self) -> bytes:
        """As its key has it."""
        fields = self._asdict()
        del fields["id"]
        return json.dumps(fields).encode()


class Owner(NamedTuple):
    """Who owns a shard, since which revision."""

    broker: str
    epoch: int


@dataclass(frozen=True)
class ClusterView:
    """Brokers, owners and wishes. `revision` is the latest at which any of it was changed."""

    shards: int
    brokers: Mapping[str, BrokerInfo] = field(default_factory=dict)
    owners: Mapping[int, Owner] = field(default_factory=dict)
    wishes: Mapping[int, str] = field(default_factory=dict)
    drains: frozenset[str] = frozenset()
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    revision: int = 0

    @classmethod
    def of(cls, keys: ClusterKeys, shards: int, found: Iterable[EtcdKey]) -> "ClusterView":
        """What some keys say."""
        by_kind: dict[str, dict[str, EtcdKey]] = {}
        revision = 0
        for each in found:
            kind, _, rest = each.key.removeprefix(f"{keys.root}/").partition("/")
            by_kind.setdefault(kind, {})[rest] = each
            revision = max(revision, each.mod_revision)
        brokers = {name: _broker(name, each) for name, each in sorted(by_kind.get("brokers", {}).items())}
        owners = {
            int(rest.removesuffix("/owner")): Owner(each.value.decode(), each.create_revision)
            for rest, each in by_kind.get("shards", {}).items()
        }
        wishes = {int(rest): each.value.decode() for rest, each in by_kind.get("wishes", {}).items()}
        topics = {
            name: tuple(json.loads(each.value)["shards"])
            for name, each in sorted(by_kind.get("topics", {}).items())
        }
        drains = frozenset(by_kind.get("drains", {}))
        return cls(shards, brokers, owners, wishes, drains, topics, revision)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The brokers that may get shards."""
        return [
            Candidate(each.id, each.capacity)
            for each in self.brokers.values()
            if not each.is_leaving and each.id not in self.drains
        ]

    @cached_property
    def targets(self) -> dict[int, str]:
        """The broker that each shard should belong to; nothing when no broker may have any."""
        found = placed(self.shards, self.candidates)
        allowed = {each.broker for each in self.candidates}
        return {
            shard: wish if (wish := self.wishes.get(shard)) in allowed else to
            for shard, to in found.items()
        }

    def order(self, shard: int) -> list[str]:
        """Who is to claim a shard that nobody owns, one after the other."""
        target = self.targets.get(shard)
        others = [each for each in ranking(shard, self.candidates) if each != target]
        return others if target is None else [target, *others]

    @cached_property
    def standbys(self) -> dict[int, str]:
        """The broker that would get each shard if its owner were gone."""
        found: dict[int, str] = {}
        for gone in {owner.broker for owner in self.owners.values()}:
            without = placed(self.shards, [each for each in self.candidates if each.broker != gone])
            found.update(
                (shard, without[shard])
                for shard, owner in self.owners.items()
                if owner.broker == gone and shard in without
            )
        return found

    def url_of(self, shard: int) -> str | None:
        """Where a shard is served, None when nobody does."""
        owner = self.owners.get(shard)
        broker = None if owner is None else self.brokers.get(owner.broker)
        return None if broker is None else broker.url

    def to_json(self) -> dict[str, Any]:
        """The map of the cluster, as clients get it."""
        return {
            "shards": self.shards,
            "revision": self.revision,
            "brokers": [
                {
                    "id": each.id,
                    "url": each.url,
                    "version": each.version,
                    "capacity": each.capacity,
                    "is_draining": each.is_leaving or each.id in self.drains,
                    "shards": sorted(s for s, owner in self.owners.items() if owner.broker == each.id),
                }
                for each in self.brokers.values()
            ],
            "owners": [self._owner_json(shard) for shard in range(self.shards)],
            "topics": {
                name: {"spread": len(shards), "shards": list(shards)}
                for name, shards in self.topics.items()
            },
        }

    def _owner_json(self, shard: int) -> dict[str, Any]:
        owner = self.owners.get(shard)
        return {
            "shard": shard,
            "broker": None if owner is None else owner.broker,
            "url": self.url_of(shard),
            "epoch": None if owner is None else owner.epoch,
            "standby": self.standbys.get(shard),
            "wish": self.wishes.get(shard),
        }


def _broker(name: str, found: EtcdKey) -> BrokerInfo:
    value = json.loads(found.value)
    return BrokerInfo(name, value["url"], value["version"], value["capacity"], value["is_leaving"])
