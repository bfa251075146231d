"""Large blocks go back to the system."""

import pytest

from quivermq.server.process import return_large_blocks


def test_who_has_said_it_in_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "4194304")
    assert not return_large_blocks()


def test_other_libraries_have_no_such_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not return_large_blocks()
