"""What a cluster is, decided once: how many shards it has, and in which bucket they are."""

import json
from dataclasses import asdict, dataclass

from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.placement import SHARDS_MAX
from quivermq.errors import ClusterNotFound, Conflict, InvalidRequest
from quivermq.shared.etcd import EtcdClient, created_at, put_key

FORMAT = 1
SHARDS = 16


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The shards and the bucket of a cluster. Raises InvalidRequest for a number that cannot be."""

    bucket: str
    shards: int = SHARDS
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= SHARDS_MAX:
            raise InvalidRequest(f"a cluster has 1 to {SHARDS_MAX} shards, not {self.shards}")

    def check_bucket(self, bucket: str | None) -> None:
        """Raise InvalidRequest when a broker was told another bucket."""
        if bucket is not None and bucket.rstrip("/") != self.bucket:
            raise InvalidRequest(
                f"the cluster keeps its messages in {self.bucket}, not in {bucket}: leave --bucket out, or"
                " name another cluster"
            )


def create_config(etcd: EtcdClient, keys: ClusterKeys, config: ClusterConfig) -> ClusterConfig:
    """Make a cluster; one that is there and is the same is left as it is. Raises Conflict for another."""
    etcd.transact([created_at(keys.config, 0)], [put_key(keys.config, json.dumps(asdict(config)).encode())])
    # Looked at in any case: somebody else may have been faster.
    found = load_config(etcd, keys)
    if found != config:
        raise Conflict(
            f"there is a cluster {keys.cluster} with {found.shards} shards in {found.bucket}: these are"
            " fixed; take another name"
        )
    return found


def load_config(etcd: EtcdClient, keys: ClusterKeys) -> ClusterConfig:
    """What the cluster is. Raises ClusterNotFound when nobody has made it."""
    found = etcd.range(keys.config)
    if not found:
        raise ClusterNotFound(
            f"there is no cluster {keys.cluster} in this etcd: make it with `quiver cluster init`"
        )
    value = json.loads(found[0].value)
    if value.get("format") != FORMAT:
        raise InvalidRequest(
            f"the cluster {keys.cluster} has format {value.get('format')}, and this release knows {FORMAT}:"
            " use the release that made it"
        )
    return ClusterConfig(value["bucket"], value["shards"])
