"""Taking over what another queue knows of messages that were imported from it.

Messages come in as any others do. What their queue knew besides is told here afterwards: how far its groups
had come, how often a message was delivered, which deduplication ids it still remembered.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quivermq.errors import InvalidRequest
from quivermq.model.adoption import AdoptedId, Progress
from quivermq.model.checks import check_partition
from quivermq.model.lanes import lane_number
from quivermq.model.names import check_group_name

if TYPE_CHECKING:
    from quivermq.engine.engine import Engine


def adopt_progress(
    engine: "Engine",
    topic: str,
    group: str,
    progress: Progress,
    *,
    partition: int,
    priority: str,
    expected: Progress | None,
) -> bool:
    """Let a group go on from there; False when it has been elsewhere meanwhile.

    Raises TopicNotFound, InvalidRequest, OffsetOutOfRange.
    """
    check_group_name(group)
    hosted = engine.hosted(topic)
    if partition is None:
        raise InvalidRequest("progress is that of one partition: say which")
    check_partition(partition, hosted.settings)
    lane, found = lane_number(priority), hosted.group(group)
    is_adopted = found.cursors[partition].adopt(lane, progress, expected)
    hosted.took(found)
    return is_adopted


def adopt_ids(engine: "Engine", topic: str, adopted: Sequence[AdoptedId]) -> int:
    """Remember deduplication ids; returns how many still hold. Raises TopicNotFound, InvalidRequest."""
    return engine.hosted(topic).topic.adopt_ids(adopted)
