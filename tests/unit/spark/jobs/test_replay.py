import pytest

from quivermq.cli.pipeline.moving import TO_KEY_VARIABLE, target_key
from quivermq.spark.jobs.replay import rate_options


def test_a_rate_is_kept_by_one_task_or_shared_by_all() -> None:
    assert rate_options(None, is_one_task=True, cores=4) == {}
    assert rate_options(100, is_one_task=True, cores=4) == {"rateLimit": "100", "rateLimitTasks": "1"}
    assert rate_options(100, is_one_task=False, cores=4) == {"rateLimit": "100", "rateLimitTasks": "4"}


def test_a_key_is_shown_to_its_own_broker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TO_KEY_VARIABLE, raising=False)
    source = {"server": "http://here:7070", "key": "secret"}
    assert target_key("http://there:7070", **source) is None
    assert target_key("http://here:7070", **source) == "secret"
    assert target_key(None, **source) is None
    monkeypatch.setenv(TO_KEY_VARIABLE, "other")
    assert target_key("http://there:7070", **source) == "other"
    assert target_key("http://there:7070", path="data") == "other"
