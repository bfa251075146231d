import json
from pathlib import Path

from support.archives import archive_queue
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


def test_what_is_archived_and_finished_goes_when_asked_for(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.queue("orders").put_many([b"tea", b"milk"])
        archive_queue(tmp_path, tmp_path / "archive", "orders")
        mq.use_archive("archive")
        mq.queue("orders").ack(mq.queue("orders").get_many(2))
    assert json.loads(quiver("compact", "--data", tmp_path, "--json").out)["messages"] == 0
    assert json.loads(quiver("compact", "--data", tmp_path, "--archived", "--json").out)["messages"] == 2
    assert "milk" in quiver("read", "orders", "--data", tmp_path).text
