"""How commands come to a cluster: its etcd, what it is, its bucket."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from quivermq.cluster.address import ClusterAddress, connect_etcd
from quivermq.cluster.config import ClusterConfig, load_config
from quivermq.cluster.naming import ClusterKeys
from quivermq.errors import InvalidRequest
from quivermq.settings import BucketSettings, Settings
from quivermq.shared.beside import store_options
from quivermq.shared.etcd import EtcdClient

if TYPE_CHECKING:
    from quivermq.shared.objects import ObjectStore

ETCD_VARIABLE = "QUIVER_CLUSTER__ETCD"
PASSWORD_VARIABLE = "QUIVER_ETCD_PASSWORD"


class ClusterAccess(NamedTuple):
    """The etcd of a cluster, and its keys there."""

    etcd: EtcdClient
    keys: ClusterKeys

    def config(self) -> ClusterConfig:
        """What the cluster is. Raises ClusterNotFound."""
        return load_config(self.etcd, self.keys)


@contextmanager
def cluster_access(settings: Settings) -> Iterator[ClusterAccess]:
    """The cluster that the settings name, closed at the end. Raises InvalidRequest when they name none."""
    address = settings.cluster.etcd
    if not address:
        raise InvalidRequest(
            f"which cluster? Say --etcd etcd://host:2379/name, set {ETCD_VARIABLE}, or `etcd` in [cluster]"
            " of quiver.toml"
        )
    etcd = connect_etcd(settings.cluster, os.environ.get(PASSWORD_VARIABLE, ""))
    try:
        yield ClusterAccess(etcd, ClusterAddress.parse(address).keys)
    finally:
        etcd.close()


def bucket_store(bucket: str, settings: BucketSettings, below: str = "") -> "ObjectStore":
    """What is below a prefix of the bucket."""
    from quivermq.shared.bucket import BucketStore

    url = f"{bucket.rstrip('/')}/{below}".rstrip("/")
    return BucketStore(url, store_options(settings), timeout_s=settings.request_timeout_ms / 1000)
