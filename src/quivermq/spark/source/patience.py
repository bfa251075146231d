"""When a stream waits for more before it begins a batch, so that batches are not too small."""

from quivermq.clock import Clock, SystemClock
from quivermq.errors import InvalidRequest
from quivermq.spark.options import SourceOptions

_DELAY_US = 15 * 60 * 1_000_000


class BatchDelay:
    """Waits for `minOffsetsPerTrigger` offsets, but for no longer than `maxTriggerDelay`."""

    def __init__(self, rows_min: int | None, delay_us: int, clock: Clock) -> None:
        self._rows_min = rows_min
        self._delay_us = delay_us
        self._clock = clock
        self._begun_us: int | None = None

    @classmethod
    def of(cls, options: SourceOptions, clock: Clock | None = None) -> "BatchDelay":
        """What the options say. Raises InvalidRequest."""
        rows_min, rows_max = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
        delay_us = options.duration_us("maxTriggerDelay")
        if rows_min is not None and rows_max is not None and rows_min > rows_max:
            raise InvalidRequest("`minOffsetsPerTrigger` is more than `maxOffsetsPerTrigger`")
        if delay_us is not None and rows_min is None:
            raise InvalidRequest("`maxTriggerDelay` is for `minOffsetsPerTrigger`: give that, too")
        return cls(rows_min, _DELAY_US if delay_us is None else delay_us, clock or SystemClock())

    def waits(self, rows: int) -> bool:
        """Whether so many are too few to begin with now."""
        if self._rows_min is None:
            return False
        now_us = self._clock.now_us()
        is_time = self._begun_us is None or now_us - self._begun_us >= self._delay_us
        if rows < self._rows_min and not is_time:
            return True
        self._begun_us = now_us
        return False
