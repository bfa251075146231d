"""A consumer in stream mode: partitions of its own, read in order, and committed positions."""
