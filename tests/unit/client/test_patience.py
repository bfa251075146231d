"""How long a client waits, and how often it tries again."""

from datetime import timedelta

import pytest

import quivermq
from quivermq.client.consuming.options import ConsumerOptions, session_of
from quivermq.client.core.patience import client_settings, patience_of
from quivermq.client.core.retry import Retry
from quivermq.errors import InvalidSettings
from quivermq.settings import ClientSettings


def test_by_default_it_is_as_the_settings_are() -> None:
    assert patience_of(None, None, None, None, None) == (30.0, Retry(8, 0.05, 5.0))


def test_the_environment_counts_more_and_an_argument_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_CLIENT__RETRIES", "2")
    monkeypatch.setenv("QUIVER_CLIENT__TIMEOUT_MS", "5s")
    # Of what else there is for others, nothing is read here.
    monkeypatch.setenv("QUIVER_SERVER__NONSENSE", "1")
    assert patience_of(None, None, None, None, timedelta(seconds=9)) == (5.0, Retry(2, 0.05, 9.0))
    assert patience_of(None, 1, 3, 0.5, None) == (1, Retry(3, 0.5, 5.0))
    told = quivermq.ClientSettings(retries=7)
    assert patience_of(told, None, None, None, None) == (30.0, Retry(7, 0.05, 5.0))


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(quivermq.InvalidRequest):
        quivermq.connect("http://127.0.0.1:1", backoff=5, backoff_max=1)
    with pytest.raises(quivermq.InvalidSettings):
        quivermq.ClientSettings(backoff_ms=10, backoff_ms_max=5)
    monkeypatch.setenv("QUIVER_CLIENT__RETRYS", "2")
    with pytest.raises(quivermq.InvalidSettings, match=r"client\.retries"):
        quivermq.connect("http://127.0.0.1:1")


def test_a_consumer_lives_as_long_as_told_or_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIVER_CLIENT__SESSION_TIMEOUT_MS", "8000")
    told = client_settings()
    assert ConsumerOptions(["a"], "g").beat_s == 7.5
    assert session_of(told, None, None) == (8000, None)
    assert session_of(told, 400, 50) == (400, 50)
    assert session_of(ClientSettings(heartbeat_ms=70), 400, None) == (400, 70)
    assert ConsumerOptions(["a"], "g", session_timeout_ms=400).beat_s == 0.1
    assert ConsumerOptions(["a"], "g", heartbeat_ms=50).beat_s == 0.05
    with pytest.raises(InvalidSettings, match="heartbeat_ms"):
        ClientSettings(heartbeat_ms=30_000)
