"""How far the groups of a GoQueue broker have come: `offsets/<group>/offsets.json`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quivermq.disk import Disk
from quivermq.importers.files import json_object, subdirectories
from quivermq.importers.model import Findings

_OFFSET_MAX = 2**63 - 1
_PARTITION = re.compile(r"[0-9]{1,10}")

# By topic, by group and by partition, the next offset that a group reads.
Committed = dict[str, dict[str, dict[int, int]]]


def read_committed(disk: Disk, directory: Path, findings: Findings) -> Committed:
    """The positions of all groups. What cannot be understood is told, and the rest counts."""
    committed: Committed = {}
    for group_directory in subdirectories(disk, directory, findings):
        path = group_directory / "offsets.json"
        document = json_object(disk, path, findings, "how far the group has come is")
        if document is None:
            continue
        group = document.get("group_id")
        group = group if isinstance(group, str) and group else group_directory.name
        told = document.get("topics")
        for topic in told if isinstance(told, dict) else ():
            # One that has committed nothing there yet has finished nothing there.
            committed.setdefault(topic, {}).setdefault(group, {})
        for topic, partition, offset in _offsets(path, document, findings):
            committed.setdefault(topic, {}).setdefault(group, {})[partition] = offset
    return committed


def _offsets(path: Path, document: Mapping[str, Any], findings: Findings) -> Iterator[tuple[str, int, int]]:
    topics = document.get("topics")
    for topic, told in topics.items() if isinstance(topics, dict) else ():
        partitions = told.get("partitions") if isinstance(told, dict) else None
        for name, entry in partitions.items() if isinstance(partitions, dict) else ():
            offset = entry.get("offset") if isinstance(entry, dict) else None
            if type(offset) is int and 0 <= offset <= _OFFSET_MAX and _PARTITION.fullmatch(name):
                yield topic, int(name), offset
            else:
                problem = f"the position in partition {name!r:.80} of {topic!r:.80} is {offset!r:.80}"
                findings.add(path, None, problem)
