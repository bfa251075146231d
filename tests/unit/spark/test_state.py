from pathlib import Path

import pytest

from quivermq.errors import DirectoryLocked, InvalidRequest
from quivermq.reading import reader_of
from quivermq.reading.reader import fingerprint
from quivermq.spark.jobs.replay import replay_statement
from quivermq.spark.jobs.state import held, job_reader, remember, remembered, state_directory


def test_state_lies_beside_the_data_or_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_directory(reader_of("/data"), "replay", "x") == Path("/data/pipelines/replay/x")
    broker = reader_of(server="http://host:1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory(broker, "run", "x").is_relative_to(tmp_path / "quiver" / "pipelines")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert state_directory(broker, "run", "x").is_relative_to("/home/somebody/.local/state/quiver")
    assert state_directory(broker, "run", "x") != state_directory(
        reader_of(server="http://host:2"), "run", "x"
    )


def test_the_same_wish_has_the_same_name() -> None:
    assert fingerprint(["a", {"b": 1, "c": 2}]) == fingerprint(["a", {"c": 2, "b": 1}])
    assert fingerprint(["a"]) != fingerprint(["b"])


def test_what_is_remembered_is_there_again(tmp_path: Path) -> None:
    assert remembered(tmp_path / "a" / "plan.json") is None
    remember(tmp_path / "a" / "plan.json", {"topics": ["é"]})
    assert remembered(tmp_path / "a" / "plan.json") == {"topics": ["é"]}


def test_one_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path / "job"), pytest.raises(DirectoryLocked), held(tmp_path / "job"):
        pass
    with held(tmp_path / "job"):
        pass


def test_a_queue_is_in_one_place() -> None:
    with pytest.raises(InvalidRequest, match="say where the queue is"):
        job_reader(None, None, None)
    with pytest.raises(InvalidRequest):
        job_reader("a", "b", None)
    assert job_reader(None, "http://host", "k").options() == {"server": "http://host", "key": "k"}


def test_the_statement_of_a_replay() -> None:
    assert (
        replay_statement(None, None, None)
        == "SELECT key, value, headers, priority, timestamp FROM messages"
    )
    assert replay_statement("a > 1", "value", None) == "SELECT value FROM messages WHERE a > 1"
    assert replay_statement(None, None, "SELECT 1") == "SELECT 1"
    with pytest.raises(InvalidRequest):
        replay_statement("a > 1", None, "SELECT 1")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "LOCK", "a\0", "x" * 300])
def test_a_name_never_leads_to_another_directory(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name for a replay"):
        state_directory(reader_of("/data"), "replay", name)
