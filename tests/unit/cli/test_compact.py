import json
from pathlib import Path

from support.command_inside import quiver

import quivermq


def test_what_is_no_longer_kept_is_removed(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", segment_messages=1)
        for value in (b"tea", b"coffee", b"milk"):
            mq.queue("orders").put(value)
        mq.alter_topic("orders", segments_max=1)
    told = json.loads(quiver("compact", "--data", tmp_path, "--json").out)
    assert (told["segments"], told["messages"], told["bytes"] > 0) == (2, 2, True)
    assert quiver("compact", "--data", tmp_path).text == "removed 0 segments, 0 messages, 0 B\n"
