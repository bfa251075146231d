"""Moments that bound a range. They decide about each message: clocks of producers are not in order."""

from typing import TYPE_CHECKING, NamedTuple

from quivermq.frame import Header

if TYPE_CHECKING:
    import pyarrow as pa

_EARLIEST_US, _LATEST_US = -(2**63), 2**63 - 1


class TimeRange(NamedTuple):
    """Moments in unix microseconds, half-open."""

    since_us: int = _EARLIEST_US
    until_us: int = _LATEST_US

    @property
    def are_all(self) -> bool:
        return self == ALL_TIMES

    def may_have(self, header: Header) -> bool:
        """Whether a message of a frame can lie between the moments."""
        return header.timestamp_max >= self.since_us and header.timestamp_min < self.until_us

    def cut(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The rows of a batch, which has a column timestamp, that lie between the moments."""
        if self.are_all:
            return batch
        import pyarrow as pa
        import pyarrow.compute as pc

        stamps = batch.column("timestamp").view(pa.int64())
        inside = pc.and_(
            pc.greater_equal(stamps, pa.scalar(self.since_us)), pc.less(stamps, pa.scalar(self.until_us))
        )
        return batch.filter(inside)


ALL_TIMES = TimeRange()
