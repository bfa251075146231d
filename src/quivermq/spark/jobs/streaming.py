"""Waiting for streaming queries, and telling how far they are."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_PAUSE_SECONDS = 0.25
_OBSERVATION, _OBSERVED_ROWS = "quiver_written", "rows"


@dataclass(slots=True)
class Standing:
    """How far a query is. `lag` is how many messages it knows of and has not read; None when unknown."""

    rows: int = 0
    """How many it has read."""
    written: int = 0
    """How many came out at its end, of those queries that count them with `counting`."""
    rows_per_second: float = 0.0
    lag: int | None = None
    batch: int = -1

    def learn(self, told: Mapping[str, Any]) -> None:
        """Take in the progress of one batch. A batch that is told again counts once."""
        if told["batchId"] > self.batch:
            self.rows += _read(told)
            self.written += _observed(told)
        self.batch = max(self.batch, told["batchId"])
        self.rows_per_second = told.get("processedRowsPerSecond") or 0.0
        lags = [lag_of(source) for source in told.get("sources", ())]
        self.lag = None if None in lags else sum(filter(None, lags))


def counting(frame: "DataFrame") -> "DataFrame":
    """The same rows, of which the progress of a query tells how many there were."""
    from pyspark.sql.functions import count, lit

    return frame.observe(_OBSERVATION, count(lit(1)).alias(_OBSERVED_ROWS))


def _read(told: Mapping[str, Any]) -> int:
    rows = told.get("numInputRows")
    # Over Spark Connect only the sources tell.
    return sum(source["numInputRows"] for source in told["sources"]) if rows is None else int(rows)


def _observed(told: Mapping[str, Any]) -> int:
    metrics = (told.get("observedMetrics") or {}).get(_OBSERVATION)
    if metrics is None:
        return 0
    # Over Spark Connect, the row comes as its schema and its values, of which it has one.
    rows = metrics["values"][0] if "values" in metrics else metrics[_OBSERVED_ROWS]
    return int(rows or 0)


def lag_of(source: Mapping[str, Any]) -> int | None:
    """How many messages lie between what a source has read and the last one there is; None when unknown."""
    latest, read = _sum(source.get("latestOffset")), _sum(source.get("endOffset"))
    return None if latest is None or read is None else max(0, latest - read)


def _sum(told: Any) -> int | None:
    """The sum of all offsets that the source quiver tells of."""
    try:
        offsets = json.loads(told) if isinstance(told, str) else told
        lanes = (lane for topic in offsets.values() for lane in topic["partitions"].values())
        return sum(sum(each.values()) for each in lanes)
    except (AttributeError, KeyError, TypeError, ValueError):
        # There is none before the first batch, and another source may tell anything.
        return None


Told = Callable[[Mapping[str, Standing]], None]


def wait_for(
    queries: Mapping[str, "StreamingQuery"], told: Told | None = None, stop: threading.Event | None = None
) -> dict[str, Standing]:
    """Wait until all queries are at their end, or until `stop`; tell from time to time how far they are.

    Raises what the first of them failed with. Afterwards none of them runs any more, whatever happened.
    """
    standings = {name: Standing() for name in queries}
    pause = stop or threading.Event()
    try:
        while any(query.isActive for query in queries.values()):
            _look(queries, standings)
            if told is not None:
                told(standings)
            if pause.wait(_PAUSE_SECONDS):
                break
    finally:
        for query in queries.values():
            query.stop()
    _look(queries, standings)
    if told is not None:
        told(standings)
    return standings


def _look(queries: Mapping[str, "StreamingQuery"], standings: Mapping[str, Standing]) -> None:
    for name, query in queries.items():
        failure = query.exception()
        if failure is not None:
            raise failure
        for progress in query.recentProgress:
            if progress["batchId"] >= standings[name].batch:
                standings[name].learn(progress)
