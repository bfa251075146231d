"""A broker of a cluster: the API of one queue for each shard it owns, and the way to those of others."""
