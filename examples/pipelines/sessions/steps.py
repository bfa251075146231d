"""A step in Python: its parameter is named after the table that it gets."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.


def long_visits(visits: DataFrame) -> DataFrame:
    """Visits of more than one click, and how many minutes passed between the first and the last."""
    # A session window ends half an hour after its last click.
    seconds = F.unix_timestamp("ended_at") - F.unix_timestamp("began_at") - 30 * 60
    return visits.where("clicks > 1").withColumn("minutes", F.round(seconds / 60, 1))
