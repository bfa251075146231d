"""What a queue in an object store does, with etcd deciding, beside what the store, etcd and others do."""
