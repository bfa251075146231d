"""Real directories on their whole way: what is in a topic afterwards is what the manifests say."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import quivermq
from quivermq import StoredMessage
from quivermq.importers import import_queue

FIXTURES = Path(__file__).parents[1] / "fixtures"
LEDGERQ = json.loads((FIXTURES / "ledgerq" / "manifest.json").read_text())["datasets"]
TINYMQ = json.loads((FIXTURES / "tinymq" / "manifest.json").read_text())["datasets"]


def stored(mq: quivermq.Engine, topic: str) -> list[StoredMessage]:
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
