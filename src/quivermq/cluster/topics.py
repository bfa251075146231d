"""Wide topics: which shards they are spread over, decided once in etcd."""

import json
from collections.abc import Sequence

from quivermq.cluster.naming import ClusterKeys
from quivermq.cluster.placement import spread_over
from quivermq.errors import TopicExists, TopicNotFound
from quivermq.model.names import check_topic_name
from quivermq.shared.etcd import EtcdClient, created_at, delete_keys, put_key


def widen(etcd: EtcdClient, keys: ClusterKeys, topic: str, spread: int, shards: int) -> Sequence[int]:
    """The shards of a topic, which is made wide unless it is. Raises TopicExists for another spread."""
    check_topic_name(topic)
    chosen = spread_over(topic, spread, shards)
    key = keys.topic(topic)
    etcd.transact([created_at(key, 0)], [put_key(key, json.dumps({"shards": chosen}).encode())])
    # Looked at in any case: somebody else may have been faster.
    found = etcd.range(key)
    there: list[int] = json.loads(found[0].value)["shards"] if found else chosen
    if len(there) != spread:
        raise TopicExists(
            f"the topic {topic} is spread over {len(there)} shards: delete it to spread it over {spread}"
        )
    return there


def narrow(etcd: EtcdClient, keys: ClusterKeys, topic: str) -> None:
    """Forget that a topic is wide, once it is deleted everywhere. Raises TopicNotFound."""
    check_topic_name(topic)
    key = keys.topic(topic)
    found = etcd.range(key)
    if not found:
        raise TopicNotFound(f"no wide topic is called {topic}")
    etcd.transact([created_at(key, found[0].create_revision)], [delete_keys(key)])
