import gc
import os
from collections.abc import Iterator

import pytest

from quivermq.delivery.collector import collector_at_rest


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_rests_until_the_last_one_is_done() -> None:
    with collector_at_rest():
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="no"), collector_at_rest():
        raise ValueError("no")
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_at_rest():
        pass
    assert not gc.isenabled()


def test_a_forked_child_has_one_that_works() -> None:
    with collector_at_rest():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
