"""Real directories on their whole way: what is in a topic afterwards is what the manifests say."""

import json
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import quivermq
from quivermq import StoredMessage
from quivermq.importers import import_queue
from quivermq.model.lanes import priority_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
LEDGERQ = json.loads((FIXTURES / "ledgerq" / "manifest.json").read_text())["datasets"]
TINYMQ = json.loads((FIXTURES / "tinymq" / "manifest.json").read_text())["datasets"]
FLUXMQ = json.loads((FIXTURES / "fluxmq" / "manifest.json").read_text())["stores"]
GOQUEUE = json.loads((FIXTURES / "goqueue" / "manifest.json").read_text())["dirs"]


def stored(mq: quivermq.Connection, topic: str) -> list[StoredMessage]:
    """All lanes, by what the messages were called before."""
    if topic not in mq.topics():
        return []
    lanes = [mq.queue(topic).read(priority=p) for p in ("high", "normal", "low")]
    return [message for lane in lanes for message in lane]


def own_headers(message: StoredMessage) -> dict[str, str]:
    return {n: v.decode() for n, v in message.headers.items() if not n.startswith("quiver-import")}


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("told", LEDGERQ, ids=[dataset["name"] for dataset in LEDGERQ])
def test_ledgerq(told: dict[str, Any], everything: bool, tmp_path: Path) -> None:
    wanted = ("pending", "consumed", "expired") if everything else ("pending",)
    messages = [m for m in told["queues"][0]["messages"] if m["state"] in wanted]
    with quivermq.open(tmp_path / "data") as mq:
        summary = import_queue(
            "ledgerq", FIXTURES / "ledgerq" / told["name"], mq, topic="t", all=everything
        )
        found = {int(m.headers["quiver-import-id"]): m for m in stored(mq, "t")}
        letters = mq.queue("t").dead_letters() if "t" in mq.topics() else []
    assert sorted(found) == [m["id"] for m in messages]
    for message in messages:
        there = found[message["id"]]
        assert sha256(there.value).hexdigest() == message["payload_sha256"]
        assert there.timestamp == message["timestamp_ns"] // 1000
        assert there.expires_at == (message["expires_at_ns"] // 1000 or None)
        assert own_headers(there) == message["headers"]
    broken = [m["file_offset"] for m in told["queues"][0]["messages"] if m["state"] in ("corrupt", "torn")]
    assert [finding.position for finding in summary.findings if finding.is_damage] == broken
    assert [letter.value for letter in letters] == [b"poison-2"] * (told["name"] == "dlq")


@pytest.mark.parametrize("told", TINYMQ, ids=[dataset["name"] for dataset in TINYMQ])
def test_tinymq(told: dict[str, Any], tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        summary = import_queue("tinymq", FIXTURES / "tinymq" / told["name"], mq)
        topics = [name for name in mq.topics() if not name.endswith(".dlq") and name != "quiver.imports"]
        found = {m.headers["quiver-import-id"].decode(): m.value for t in topics for m in stored(mq, t)}
        found |= {
            s.headers["quiver-import-id"].decode(): s.value for t in topics for s in mq.queue(t).scheduled()
        }
        dead = [letter.value for topic in topics for letter in mq.queue(topic).dead_letters()]
    records = {r["id"]: r for file in told["files"] for r in file["records"] if r.get("type") == "PUT"}
    live = [i for f, ids in told["live_ids_by_file_deduplicated"].items() if ".dlq." not in f for i in ids]
    # The only topic of which nothing is left is one whose only message has expired.
    expired = [i for i in live if (records[i]["expires_at"] or "9") < "2026-11-15T19:57"]
    assert sorted(found) == sorted(set(live) - set(expired))
    assert sum(topic.expired for topic in summary.topics) == len(expired)
    for message_id, value in found.items():
        assert sha256(value).hexdigest() == records[message_id]["payload_sha256"]
    assert dead == [b"poison"] * (told["name"] == "dlq")


def raw(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("store", ["none", "zstd"])
def test_fluxmq(store: str, everything: bool, tmp_path: Path) -> None:
    told = FLUXMQ[store]["data"]
    groups = told.get("groups", {})
    left = {
        name: {int(o): e["delivery_count"] for o, e in g.get("pending", {}).items()}
        for name, g in groups.items()
    }

    def is_left(name: str, offset: int) -> bool:
        return offset >= groups[name]["cursor"] or offset in left[name]

    wanted = [
        m
        for m in told["messages"]
        if everything or not groups or any(is_left(name, m["offset"]) for name in groups)
    ]
    with quivermq.open(tmp_path / "data") as mq:
        import_queue("fluxmq", FIXTURES / "fluxmq" / store, mq, topic="t", all=everything)
        found = mq.queue("t").read(limit=1000)
        got = {
            name: {
                int(m.headers["quiver-import-id"]): m.attempt for m in mq.queue("t", name).get_many(1000)
            }
            for name in groups
        }
    assert [int(m.headers["quiver-import-id"]) for m in found] == [m["offset"] for m in wanted]
    for there, message in zip(found, wanted, strict=True):
        assert there.value == (raw(message["value_b64"]) or b"")
        assert (there.key, there.timestamp) == (raw(message["key_b64"]), message["ts_ms"] * 1000)
        headers = {name: b64decode(text) for name, text in message["headers_b64"].items()}
        assert {n: v for n, v in there.headers.items() if not n.startswith("quiver-")} == headers
    for name in groups:
        offsets = [m["offset"] for m in wanted if is_left(name, m["offset"])]
        assert got[name] == {offset: left[name].get(offset, 0) + 1 for offset in offsets}


def test_goqueue(tmp_path: Path) -> None:
    told = [m for m in GOQUEUE["partition_multi"]["messages"] if not m.get("control")]
    lanes = {"high": (0, 1), "normal": (2,), "low": (3, 4)}
    own = {0: b"critical", 4: b"background"}
    with quivermq.open(tmp_path / "data") as mq:
        import_queue("goqueue", FIXTURES / "goqueue" / "partition_multi", mq, topic="t")
        found = {lane: mq.queue("t").read(limit=1000, priority=priority_of(lane)) for lane in lanes}
    for lane, priorities in lanes.items():
        messages = [m for m in told if m["priority"] in priorities]
        assert [int(m.headers["quiver-import-id"]) for m in found[lane]] == [m["offset"] for m in messages]
        for there, message in zip(found[lane], messages, strict=True):
            assert (there.value, there.key) == (raw(message["value_b64"]), raw(message["key_b64"]))
            assert there.timestamp == message["ts_ns"] // 1000
            assert there.headers.get("quiver-import-priority") == own.get(message["priority"])
            assert own_headers(there) == (message["headers"] or {})
