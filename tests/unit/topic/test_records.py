"""Changes of state as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import InvalidFrame
from quivermq.topic.records import pack, unpack

int64 = st.integers(-(2**63), 2**63 - 1)
changes = st.tuples(st.integers(0, 255), st.integers(0, 255), st.lists(int64), st.binary(max_size=300))


@given(st.lists(changes))
def test_a_record_is_its_changes_one_after_the_other(
    given_changes: list[tuple[int, int, list[int], bytes]],
) -> None:
    record = b"".join(pack(*change) for change in given_changes)
    found = [(kind, lane, list(numbers), text) for kind, lane, numbers, text in unpack(record)]
    assert found == given_changes


@given(changes)
def test_every_change_is_aligned(change: tuple[int, int, list[int], bytes]) -> None:
    assert len(pack(*change)) % 8 == 0


def test_the_bytes_stay_the_same_in_every_release() -> None:
    assert pack(3, 1, [5, -1], b"ab") == (
        bytes([3, 1, 2, 0, 2, 0, 0, 0]) + b"ab\0\0\0\0\0\0" + bytes([5, 0, 0, 0, 0, 0, 0, 0]) + b"\xff" * 8
    )


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3]])
@pytest.mark.parametrize("text", [b"", b"a", b"eight by"])
def test_a_record_that_is_cut_short_is_refused(numbers: list[int], text: bytes) -> None:
    whole = pack(1, 0, [9])
    record = whole + pack(2, 1, numbers, text)
    for end in range(len(whole) + 1, len(record)):
        with pytest.raises(InvalidFrame) as raised:
            list(unpack(record[:end]))
        assert raised.value.position == len(whole)


def test_a_number_that_does_not_fit_is_our_own_mistake() -> None:
    with pytest.raises(OverflowError):
        pack(1, 0, [2**63])
