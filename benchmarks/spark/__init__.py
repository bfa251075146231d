"""What bulk work over Spark costs, beside Spark's own Parquet."""
