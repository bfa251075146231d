"""Reading messages with Spark: which topics, which offsets, in which tasks; as a batch and as a stream."""
