import json
from pathlib import Path

from support.command import table_rows
from support.command_inside import quiver
from support.manual_clock import ManualClock

import quivermq
from quivermq.clock import SystemClock
from quivermq.opening import open_directory


def test_everything_is_counted(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.queue("quiet").put(b"x")
        mq.queue("orders", "a").put_many([b"tea", b"coffee"])
        mq.queue("orders", "a").pop()
        mq.queue("orders", "b").get()
    ran = quiver("stats", "--data", tmp_path)
    rows = table_rows(ran.text)
    assert [row[:2] for row in rows] == [["orders", "2"], ["b", "1"], ["quiet", "1"]]
    assert rows[0][-6:] == ["a", "1", "0", "0", "0", "waiting"]
    assert rows[1][-1] == "consuming"
    *_, counts, judged = ran.text.splitlines()
    assert counts.startswith("2 topics, 3 messages, ")
    assert judged == "all is well"
    told = json.loads(quiver("stats", "--data", tmp_path, "--json").out)
    assert (told["messages"], sorted(told["topics"])) == (3, ["orders", "quiet"])
    assert told["topics"]["orders"]["groups"]["b"]["in_flight"] == 1
    assert told["topics"]["orders"]["groups"]["b"]["state"] == "consuming"
    assert told["alerts"] == []


def test_an_empty_queue_has_nothing_to_count(tmp_path: Path) -> None:
    quivermq.open(tmp_path).close()
    assert quiver("stats", "--data", tmp_path).text.startswith("0 topics, 0 messages, 0 B, ")


def test_what_is_wrong_is_told_the_worst_first(tmp_path: Path) -> None:
    hours_ago = SystemClock().now_us() - 2 * 3_600_000_000
    with open_directory(tmp_path, clock=ManualClock(hours_ago)) as mq:
        orders = mq.queue("orders", "billing")
        orders.put_many([b"tea", b"coffee"])
        orders.get_many(1)[0].reject("no such customer")
    ran = quiver("stats", "--data", tmp_path)
    assert "2 alerts, the worst first:" in ran.text
    assert "all is well" not in ran.text
    told = json.loads(quiver("stats", "--data", tmp_path, "--json").out)
    assert [alert["alert"] for alert in told["alerts"]] == [
        "QuiverConsumersFallBehind",
        "QuiverDeadLettersWait",
    ]
    assert told["alerts"][0]["summary"] == "billing has had a message of orders unfinished for 2 h 0 min"
    assert "1 dead letter of orders waits for a decision" in ran.text
    assert told["topics"]["orders"]["groups"]["billing"]["state"] == "stalled"
