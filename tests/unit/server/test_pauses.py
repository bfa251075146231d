import gc
import sys
from collections.abc import Iterator

import pytest

from quivermq.server import process as pauses
from quivermq.server.process import Collections, short_pauses


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_survives_a_whole_collection_is_set_aside_when_it_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collections = Collections()
    gc.collect()
    before = gc.get_freeze_count()
    monkeypatch.setattr(pauses, "SURVIVORS_MAX", sys.maxsize)
    collections("stop", {"generation": 2})
    assert gc.get_freeze_count() == before
    monkeypatch.setattr(pauses, "SURVIVORS_MAX", 10)
    collections("stop", {"generation": 1})
    assert gc.get_freeze_count() == before
    collections("stop", {"generation": 2})
    assert gc.get_freeze_count() > before + 10


def test_after_a_while_everything_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    collections = Collections()
    gc.freeze()
    collections("start", {"generation": 2})
    assert gc.get_freeze_count()
    monkeypatch.setattr(pauses, "_LOOK_AGAIN_S", 0.0)
    collections("start", {"generation": 2})
    assert not gc.get_freeze_count()


def test_a_process_is_left_as_it_was() -> None:
    before = sys.getswitchinterval(), list(gc.callbacks)
    with short_pauses():
        assert sys.getswitchinterval() < before[0]
        assert gc.get_freeze_count()
        # Of every size, whoever asks for one.
        gc.collect()
    assert (sys.getswitchinterval(), list(gc.callbacks)) == before
    assert not gc.get_freeze_count()
