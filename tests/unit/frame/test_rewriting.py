"""Taking messages out of frames: what stays is the same, what goes leaves its offset."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from quivermq.frame import ANONYMOUS, Codec, Frame, Producer, encode
from quivermq.frame.compaction import (
    REMOVED,
    compacted_run,
    has_removed,
    is_bound,
    is_compacted_run,
    left_of,
    removed_offsets,
    stamp_of,
)
from quivermq.frame.rewriting import compacted, left_mask, rewritten
from quivermq.model.messages import Record

FULL: dict[str, Any] = {
    "keys": [b"a", None, b"", b"ccc", b"a"],
    "headers": [{"x": b"1", "yy": b""}, None, {}, {"ä": b"zz"}, {"x": b"2"}],
    "timestamp": [50, 10, 30, 20, 40],
    "expires_at": [None, 7, None, 9, None],
    "dedup_ids": ["one", None, "drei", None, "fünf"],
    "origin_ids": ["a-1-0", "b-1-1", None, None, "c-2-0"],
}


def frame_of(
    values: Sequence[bytes],
    base_offset: int = 100,
    *,
    codec: Codec = Codec.NONE,
    producer: Producer = ANONYMOUS,
    **columns: Any,
) -> Frame:
    columns.setdefault("timestamp", 5)
    made = encode(values, codec=codec, producer=producer, **columns)
    return made.stamped(base_offset, 777, leader_epoch=3)


def reread(frame: Frame) -> Frame:
    """The frame as any other process would have it, with everything inside checked."""
    again = Frame.parse(bytes(frame))
    again.validate() if not again.is_control else None
    return again


def emptied(record: Record) -> Record:
    return record._replace(key=None, value=b"", headers={}, expires_at=REMOVED, origin_id=None)


def expected(frame: Frame, kept: Sequence[bool]) -> list[Record]:
    return [r if k else emptied(r) for r, k in zip(frame.records(), kept, strict=True)]


@pytest.mark.parametrize("kept", [[True, False, True, False, True], [False] * 5, [False] * 4 + [True]])
@pytest.mark.parametrize("columns", [{}, FULL, *({name: FULL[name]} for name in FULL)])
@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_kept_is_the_same_and_the_rest_is_emptied(
    kept: list[bool], columns: dict[str, Any], codec: Codec
) -> None:
    values = [b"v" * 40, b"", b"w" * 7, b"x" * 300, b"y"]
    frame = frame_of(values, codec=codec, producer=Producer(9, 2, 8), **columns)
    made = reread(compacted(frame, pa.array(kept)))
    assert made.records() == expected(frame, kept)
    same = ("message_count", "base_offset", "append_time", "leader_epoch", "timestamp_min", "timestamp_max")
    for name in (*same, "producer_id", "producer_epoch", "base_sequence", "flags", "version"):
        assert getattr(made.header, name) == getattr(frame.header, name)
    left = left_mask(made)
    assert left is not None
    assert left.to_pylist() == kept
    assert removed_offsets(made) == [100 + i for i, k in enumerate(kept) if not k]
    assert has_removed(made)
    assert [r.offset for r in left_of(made, made.records())] == [
        r.offset for r, k in zip(frame.records(), kept, strict=True) if k
    ]


def test_nothing_changes_where_everything_is_kept() -> None:
    frame = frame_of([b"a", b"b"], keys=[b"k", None])
    assert compacted(frame, pa.array([True, True])) is frame
    assert not has_removed(frame)
    assert left_mask(frame) is None
    assert removed_offsets(frame) == []
    assert list(rewritten([frame], lambda f, _: pa.array([True] * len(f)))) == [frame]


def test_what_was_taken_out_stays_out() -> None:
    once = compacted(frame_of([b"a", b"b"], keys=[b"k", b"l"]), pa.array([False, True]))
    assert compacted(once, pa.array([True, True])) is once
    assert compacted(once, pa.array([False, False])).records() == expected(once, [False, False])


def keeping(*offsets: int) -> Any:
    return lambda _, batch: pa.array([o in offsets for o in batch.column("offset").to_pylist()])


def spans(frames: list[Frame]) -> list[tuple[int, int, bool]]:
    return [(f.header.base_offset, f.header.end_offset, f.is_control) for f in frames]


def size_of(frames: list[Frame]) -> int:
    return sum(frame.header.frame_bytes for frame in frames)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("producer", [ANONYMOUS, Producer(4, 1, 0)])
def test_a_frame_of_which_little_goes_does_not_become_larger(codec: Codec, producer: Producer) -> None:
    """Though to mark one message takes eight bytes in each of them."""
    count, rng = 10_000, random.Random(1)
    keys = [b"%05d" % number for number in range(count)]
    frame = frame_of([rng.randbytes(20) for _ in keys], 0, keys=keys, codec=codec, producer=producer)
    others = [offset for offset in range(count) if offset != 7000]
    (made,) = map(reread, rewritten([frame], keeping(*others)))
    assert removed_offsets(made) == [7000]
    assert made.header.raw_bytes > frame.header.raw_bytes + 8 * count
    # A codec that is better than the fast one may lose a trifle.
    assert size_of([made]) <= size_of([frame]) * (1.01 if codec is Codec.GZIP else 1)


def test_a_frame_that_nobody_could_read_any_more_stays_as_it_is() -> None:
    count = 2000
    keys = [b"%05d" % number for number in range(count)]
    frame = frame_of([b"value"] * count, 0, keys=keys, producer=Producer(4))
    most = keeping(*range(1, count))
    assert list(rewritten([frame], most, raw_bytes_max=frame.header.raw_bytes + 100)) == [frame]
    (made,) = rewritten([frame], most, raw_bytes_max=frame.header.raw_bytes + 17_000)
    assert removed_offsets(made) == [0]
    # What is no larger than before can be read as before, whatever the limit is.
    (made,) = map(reread, rewritten([frame], keeping(*range(count - 10, count)), raw_bytes_max=0))
    assert made.header.raw_bytes <= frame.header.raw_bytes
    assert len(left_of(made, made.records())) == 10


def test_frames_of_which_nothing_is_left_become_one_gap() -> None:
    frames = [frame_of([b"v"] * 20, base, keys=[b"k"] * 20) for base in range(0, 100, 20)]
    made = list(map(reread, rewritten(frames, keeping(43))))
    assert spans(made) == [(0, 43, True), (43, 44, False), (44, 100, True)]
    assert [is_compacted_run(f) for f in made] == [True, False, True]
    assert made[1].records() == [frames[2].records()[3]]
    # Again it is the same, to the byte.
    assert list(map(bytes, rewritten(made, keeping(43)))) == list(map(bytes, made))
    assert spans(list(rewritten(made, keeping()))) == [(0, 100, True)]


def test_a_frame_that_somebody_relies_on_keeps_its_place() -> None:
    named = frame_of([b"v"] * 3, 10, keys=[b"k"] * 3, producer=Producer(4, 1, 0))
    known = frame_of([b"v"] * 3, 13, keys=[b"k"] * 3, dedup_ids=["a", None, "c"])
    plain = [frame_of([b"v"] * 3, base, keys=[b"k"] * 3) for base in (7, 16)]
    assert [is_bound(f.header) for f in (named, known, plain[0])] == [True, True, False]
    made = list(map(reread, rewritten([plain[0], named, known, plain[1]], keeping())))
    assert spans(made) == [(7, 10, True), (10, 13, False), (13, 16, False), (16, 19, True)]
    assert made[1].header.producer_id == 4
    assert list(made[2].dedup_ids()) == ["a", None, "c"]


def test_a_frame_is_divided_only_where_that_saves_room() -> None:
    frame = frame_of([b"v" * 50] * 100, 0, keys=[b"k"] * 100, timestamp=list(range(100)))
    made = list(map(reread, rewritten([frame], keeping(2, 5, 60, 99))))
    assert spans(made) == [
        (0, 6, False), (6, 60, True), (60, 61, False), (61, 99, True), (99, 100, False),
    ]  # fmt: skip
    assert (made[0].header.timestamp_min, made[0].header.timestamp_max) == (0, 5)
    assert made[0].records() == expected(frame, [i in (2, 5) for i in range(100)])[:6]
    assert sum(f.header.frame_bytes for f in made) < frame.header.frame_bytes / 4


def test_a_random_choice_against_plain_python() -> None:
    rng = random.Random(5)
    for _ in range(30):
        base, frames = 0, []
        for _ in range(6):
            count = rng.randint(1, 60)
            columns: dict[str, Any] = {}
            if rng.random() < 0.8:
                columns["keys"] = [
                    rng.choice([None, b"", b"k%d" % rng.randint(0, 9)]) for _ in range(count)
                ]
            if rng.random() < 0.3:
                columns["headers"] = [
                    {"h": rng.randbytes(3)} if rng.random() < 0.5 else None for _ in range(count)
                ]
            if rng.random() < 0.3:
                columns["expires_at"] = [rng.choice([None, 10**15]) for _ in range(count)]
            if rng.random() < 0.2:
                columns["dedup_ids"] = [rng.choice([None, "d"]) for _ in range(count)]
            values = [rng.randbytes(rng.randint(0, 30)) for _ in range(count)]
            frames.append(frame_of(values, base, codec=rng.choice(list(Codec)), **columns))
            base += count
        kept = {o for o in range(base) if rng.random() < rng.choice([0.02, 0.5])}
        made = list(map(reread, rewritten(frames, keeping(*kept))))
        ends = [f.header.end_offset for f in made]
        assert [f.header.base_offset for f in made] == [0, *ends[:-1]]
        assert ends[-1] == base
        left = [r for f in made for r in left_of(f, f.records())]
        assert left == [r for f in frames for r in f.records() if r.offset in kept]


def test_a_gap_longer_than_a_header_can_count() -> None:
    frames = compacted_run((5, 5 + 2**32), append_time=1, timestamp=2)
    assert spans(frames) == [(5, 4 + 2**32, True), (4 + 2**32, 5 + 2**32, True)]


def test_a_stamp_tells_frames_apart() -> None:
    frames = [frame_of([b"a"], 0), frame_of([b"b"], 1)]
    others = [frame_of([b"a"], 0), frame_of([b"c"], 1)]
    assert stamp_of(f.header for f in frames) == stamp_of(reread(f).header for f in frames)
    assert len({stamp_of(f.header for f in some) for some in (frames, others, frames[:1], [])}) == 4


def test_other_control_frames_are_left_alone() -> None:
    from quivermq.frame import encode_control

    other = encode_control(b'{"kind": "gap"}', count=3, timestamp=1).stamped(0, 1)
    assert not is_compacted_run(other)
    assert list(rewritten([other], keeping())) == [other]
