"""Searching whole frames: the same messages are found as by a look at each."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.frame import REMOVED, Codec, Wanted, encode, encode_control, encode_records, matching
from quivermq.model.messages import Record

# Few letters, so that much is found, also over the ends of messages.
TEXTS = st.binary(max_size=4).map(lambda raw: bytes(97 + byte % 2 for byte in raw))
MESSAGES = st.lists(
    st.tuples(TEXTS, st.none() | TEXTS, st.dictionaries(st.sampled_from("xy"), TEXTS, max_size=2)),
    min_size=1,
    max_size=8,
)


@given(MESSAGES, st.none() | TEXTS, st.none() | TEXTS, st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_the_same_is_found_as_by_a_look_at_each(
    messages: list[tuple[bytes, bytes | None, dict[str, bytes]]],
    key: bytes | None,
    text: bytes | None,
    codec: Codec,
) -> None:
    values, keys, headers = (list(column) for column in zip(*messages, strict=True))
    frame = encode(values, timestamp=5, keys=keys, headers=headers, codec=codec).stamped(100, 5)
    expected = [
        record
        for record in frame.records()
        if (key is None or record.key == key)
        and (text is None or any(text in part for part in parts(record)))
    ]
    assert list(Wanted(key, text).records(frame)) == expected


def parts(record: Record) -> list[bytes]:
    return [record.value, record.key or b"", *record.headers.values()]


def test_what_compaction_took_out_and_control_frames_are_not_found() -> None:
    gone = Record(7, 5, b"k", b"text", {}, REMOVED, None)
    left = Record(8, 5, b"k", b"text", {}, None, None)
    frame = encode_records([gone, left], 5)
    assert list(Wanted(b"k", b"text").records(frame)) == [left]
    assert list(Wanted().records(frame)) == [left]
    control = encode_control(b"text", count=3, timestamp=5)
    assert list(Wanted(text=b"text").records(control)) == []


def test_nothing_that_is_wanted_is_everything() -> None:
    assert not Wanted()
    assert not Wanted(text=b"")
    assert Wanted(key=b"")


def test_what_only_seems_to_be_there_is_looked_at_once_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def counting(offsets: list[int], position: int) -> int:
        looks.append(position)
        return bisect_right(offsets, position)

    monkeypatch.setattr(matching, "bisect_right", counting)
    # The text begins at nearly every byte, and is inside of no message.
    frame = encode([b"a" * 999] * 50, timestamp=5).stamped(0, 5)
    assert Wanted(text=b"a" * 1000).records(frame) == []
    assert len(looks) <= 50
