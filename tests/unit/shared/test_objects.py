"""Objects that have to be there are, or it is said which one is not."""

import pytest

from quivermq.errors import DamagedChunk
from quivermq.shared.memory import MemoryStore
from quivermq.shared.objects import needed, needed_range


def test_what_has_to_be_there() -> None:
    store = MemoryStore({"file/1": b"0123456789"})
    assert needed(store, "file/1", 10) == b"0123456789"
    assert needed_range(store, "file/1", 4, 6) == b"456789"
    with pytest.raises(DamagedChunk, match="file/2 is damaged: it is not there"):
        needed(store, "file/2", 10)
    with pytest.raises(DamagedChunk, match="file/2 is damaged: it is not there"):
        needed_range(store, "file/2", 0, 1)
    with pytest.raises(DamagedChunk, match="it has 2 of the 5 bytes from 8 on"):
        needed_range(store, "file/1", 8, 5)
