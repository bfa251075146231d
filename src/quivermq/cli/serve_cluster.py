"""`quiver serve --cluster`: be a broker of a cluster until told to stop."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quivermq.cli.clusters import bucket_store, cluster_access
from quivermq.cli.output import print_line_of_json
from quivermq.clock import SystemClock
from quivermq.engine.bucket import default_cache
from quivermq.errors import InvalidRequest
from quivermq.settings import Settings
from quivermq.shared.beside import store_limits

if TYPE_CHECKING:
    from quivermq.cluster.node import ClusterNode
    from quivermq.server.run import Server


def serve_in_cluster(settings: Settings, *, as_json: bool) -> None:
    """Join the cluster that the settings name, and serve shards of it."""
    from quivermq.cluster.node import ClusterNode
    from quivermq.server.keys import KeyStore
    from quivermq.server.shards.run import serve_cluster

    with cluster_access(settings) as access:
        config = access.config()
        config.check_bucket(settings.cluster.bucket or None)
        cache = _cache(settings, config.bucket)
        node = ClusterNode(
            access.etcd,
            access.keys,
            config,
            store_of=lambda shard: bucket_store(config.bucket, settings.bucket, str(shard)),
            cache=cache,
            settings=settings,
            clock=SystemClock(),
            shared_limits=store_limits(settings.bucket),
        )
        serve_cluster(
            node,
            settings,
            keys=KeyStore(cache, file=settings.server.keys),
            ready=lambda server, node: _print_addresses(server, node, as_json=as_json),
        )


def _cache(settings: Settings, bucket: str) -> Path:
    """Where the shards of this broker are kept: of each broker of a machine, elsewhere."""
    if settings.bucket.cache is not None:
        return settings.bucket.cache
    if settings.server.port == 0 and not settings.cluster.advertise and not settings.cluster.id:
        raise InvalidRequest("a broker on any port needs a cache of its own: say --cache DIRECTORY")
    named = settings.cluster.advertise or f"//{settings.server.host}:{settings.server.port}"
    own = settings.cluster.id or urlsplit(named).netloc
    return default_cache(f"{bucket} {own}", settings.bucket)


def _print_addresses(server: "Server", node: "ClusterNode", *, as_json: bool) -> None:
    addresses = {
        "url": server.url,
        "cluster": node.keys.cluster,
        "broker": node.id,
        "shards": node.config.shards,
        "bucket": node.config.bucket,
        "metrics": f"{server.url}/metrics",
    }
    if as_json:
        print_line_of_json(addresses)
    else:
        print(f"Quiver serves the cluster {node.keys.cluster} as {node.id}")
        print(f"  API       {server.url}/v1/cluster")
        print(f"  metrics   {server.url}/metrics")
        print(f"  bucket    {node.config.bucket}, {node.config.shards} shards")
        print("Ctrl-C gives its shards to the others, and ends it.")
    # Whoever waits for this may read from a pipe, and the next line comes never.
    sys.stdout.flush()
