"""Who owns which shard: brokers that share the shards of a cluster, and decide about it in etcd."""
