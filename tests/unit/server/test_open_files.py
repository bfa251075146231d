"""The limit of open files is raised as far as the system allows, and never lowered."""

import resource

import pytest

from quivermq.server.process import allow_open_files


@pytest.mark.parametrize(
    ("limits", "asked_for", "is_warned"),
    [
        ((1024, 1_000_000), [(14_096, 1_000_000)], False),
        ((1024, resource.RLIM_INFINITY), [(14_096, resource.RLIM_INFINITY)], False),
        ((1024, 4096), [(4096, 4096)], True),
        ((500_000, 1_000_000), [], False),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), [], False),
    ],
)
def test_as_many_files_are_asked_for_as_connections_need(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    asked_for: list[tuple[int, int]],
    is_warned: bool,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    allow_open_files(10_000)
    assert asked == asked_for
    assert ("ulimit -n" in caplog.text) == is_warned
