"""A range of a topic as an Arrow table, for whoever works on messages without Spark.

Which pages to read is decided here, without reading any.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.frame import OFFSET_MAX
from quivermq.model.checks import check_number
from quivermq.model.lanes import PRIORITIES, Priority, check_priority
from quivermq.model.messages import StoredMessage
from quivermq.model.topic_settings import PARTITIONS_MAX

if TYPE_CHECKING:
    import pyarrow as pa

_PAGE = 10_000
_LIMIT_MAX = 2**31 - 1


class PageRequest(NamedTuple):
    """One page of a lane: the arguments of a `read`, in its order."""

    partition: int
    start: int | None
    limit: int
    priority: Priority


@dataclass(frozen=True, slots=True)
class TableRange:
    """What somebody wants of a topic. Raises InvalidRequest for what nobody can mean."""

    partition: int | None = None
    start: int | None = None
    end: int | None = None
    limit: int | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        if self.partition is not None:
            check_number("partition", self.partition, 0, PARTITIONS_MAX)
        for name, number, most in (
            ("start", self.start, OFFSET_MAX),
            ("end", self.end, OFFSET_MAX),
            ("limit", self.limit, _LIMIT_MAX),
        ):
            if number is not None:
                check_number(name, number, 0, most)
        if self.priority is not None:
            check_priority(self.priority)

    def pages(self, partitions: int) -> Generator[PageRequest, list[StoredMessage], list[StoredMessage]]:
        """Asks for one page after the other, is sent its messages, and returns all of them."""
        found: list[StoredMessage] = []
        numbers = range(partitions) if self.partition is None else [self.partition]
        for number in numbers:
            for priority in PRIORITIES if self.priority is None else [self.priority]:
                start = self.start
                while left := self._left(len(found), start):
                    page = yield PageRequest(number, start, min(left, _PAGE), priority)
                    kept = [each for each in page if self.end is None or each.offset < self.end]
                    found += kept
                    if not page or len(kept) < len(page):
                        break
                    start = page[-1].offset + 1
        return found

    def _left(self, found: int, start: int | None) -> int:
        """How many more messages there may be, from an offset of a lane on."""
        left = _LIMIT_MAX if self.limit is None else self.limit - found
        if self.end is None:
            return left
        return min(left, max(0, self.end - (start or 0)))


def is_behind(error: OffsetOutOfRange, request: PageRequest) -> bool:
    """Whether a page is not there because a lane ends before it, and nothing is gone."""
    return request.start is not None and request.start >= error.end


def check_arrow() -> None:
    """Raise InvalidRequest unless pyarrow is there."""
    try:
        import pyarrow  # noqa: F401 - Only whether it is there.
    except ImportError:
        raise InvalidRequest("an Arrow table needs pyarrow: pip install 'quivermq[spark]'") from None


def table_of(messages: Sequence[StoredMessage]) -> "pa.Table":
    """Messages as a table, with the columns and types that they have for Spark."""
    import pyarrow as pa

    from quivermq.frame.arrow import HEADERS, TIME

    types: dict[str, Any] = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "priority": pa.string(),
        "offset": pa.int64(),
        "timestamp": TIME,
        "headers": HEADERS,
        "expires_at": TIME,
        "dedup_id": pa.string(),
        "scheduled_id": pa.string(),
    }
    columns = dict(zip(StoredMessage._fields, zip(*messages, strict=True), strict=True)) if messages else {}
    columns["headers"] = tuple(list(each.items()) for each in columns.get("headers", ()))
    arrays = [pa.array(columns.get(name, ()), kind) for name, kind in types.items()]
    return pa.table(arrays, schema=pa.schema(types))
