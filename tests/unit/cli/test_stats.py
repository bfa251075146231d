import json
from pathlib import Path

from support.command import table_rows
from support.command_inside import quiver

import quivermq


def test_everything_is_counted(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.queue("quiet").put(b"x")
        mq.queue("orders", "a").put_many([b"tea", b"coffee"])
        mq.queue("orders", "a").pop()
        mq.queue("orders", "b").get()
    ran = quiver("stats", "--data", tmp_path)
    rows = table_rows(ran.text)
    assert [row[:2] for row in rows] == [["orders", "2"], ["b", "1"], ["quiet", "1"]]
    assert rows[0][-4:] == ["a", "1", "0", "0"]
    assert ran.text.splitlines()[-1].startswith("2 topics, 3 messages, ")
    told = json.loads(quiver("stats", "--data", tmp_path, "--json").out)
    assert (told["messages"], sorted(told["topics"])) == (3, ["orders", "quiet"])
    assert told["topics"]["orders"]["groups"]["b"]["in_flight"] == 1


def test_an_empty_queue_has_nothing_to_count(tmp_path: Path) -> None:
    quivermq.open(tmp_path).close()
    assert quiver("stats", "--data", tmp_path).text.startswith("0 topics, 0 messages, 0 B, ")
