"""Writing DataFrames to topics, from the executors, exactly once."""
