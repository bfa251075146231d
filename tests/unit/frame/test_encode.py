"""Whatever a caller hands in, `encode` makes a frame that every reader accepts, or says what is wrong."""

import sys
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from vectors import forged, int32s, padded

from quivermq.errors import InvalidFrame, InvalidRequest, MessageTooLarge
from quivermq.frame import (
    HEADER_BYTES,
    Codec,
    Column,
    EntryFields,
    Flag,
    Frame,
    Producer,
    encode,
    encode_control,
    first_messages,
    lone_frame,
    part_of,
    with_expiry,
)

TIME = 1_700_000_000_000_000


def read_back(frame: Frame) -> Frame:
    parsed = Frame.parse(bytes(frame))
    parsed.validate()
    return parsed


def encode_anything(values: Any, **columns: Any) -> Frame:
    """`encode` as somebody calls it who does not check types."""
    return encode(values, **{"timestamp": TIME, **columns})


class TestValues:
    @pytest.mark.parametrize(
        ("value", "kind"),
        [("text", "str"), (None, "NoneType"), (5, "int"), (1.5, "float"), ([1], "list"), ({}, "dict")],
    )
    @pytest.mark.parametrize("place", [0, 2])
    def test_what_is_not_bytes_is_named_with_its_place(self, value: object, kind: str, place: int) -> None:
        values: list[object] = [b"a", b"b", b"c"]
        values[place] = value
        with pytest.raises(InvalidRequest, match=rf"value {place} .* is a {kind} where bytes belong"):
            encode_anything(values)

    @pytest.mark.parametrize(
        "values",
        [
            pytest.param("abc", id="str"),
            pytest.param(b"abc", id="bytes"),
            pytest.param(bytearray(b"abc"), id="bytearray"),
            pytest.param(memoryview(b"abc"), id="memoryview"),
            pytest.param(None, id="None"),
            pytest.param(5, id="int"),
            pytest.param({b"a": b"b"}, id="dict"),
            pytest.param({b"a"}, id="set"),
            pytest.param(iter([b"a"]), id="iterator"),
            pytest.param((value for value in [b"a"]), id="generator"),
        ],
    )
    def test_a_batch_is_a_sequence_of_messages(self, values: object) -> None:
        with pytest.raises(InvalidRequest, match="values must be a sequence, like a list, not a"):
            encode_anything(values)

    @pytest.mark.parametrize("empty", [[], (), deque()])
    def test_an_empty_batch_is_refused(self, empty: object) -> None:
        with pytest.raises(InvalidRequest, match="at least one message"):
            encode_anything(empty)

    @pytest.mark.parametrize(
        "view",
        [
            pytest.param(memoryview(array("i", [1, 2])), id="items of four bytes"),
            pytest.param(memoryview(bytes(6)).cast("B", [2, 3]), id="two dimensions"),
            pytest.param(memoryview(bytes(4)).cast("i", []), id="no dimension"),
        ],
    )
    def test_a_memoryview_whose_length_is_not_its_size_is_refused(self, view: memoryview) -> None:
        with pytest.raises(InvalidRequest, match=r"cast\('B'\)|no length|one byte"):
            encode_anything([b"before", view])

    def test_a_memoryview_with_holes_is_refused_for_what_it_is(self) -> None:
        with pytest.raises(InvalidRequest, match="cannot be read as bytes") as caught:
            encode_anything([memoryview(b"abcdef")[::2]])
        assert "2147483647" not in str(caught.value)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_every_kind_of_bytes_is_taken(self, kind: Callable[[bytes], Any]) -> None:
        assert read_back(encode([kind(b"abc"), kind(b"")], timestamp=TIME)).values() == [b"abc", b""]

    @pytest.mark.parametrize("kind", [list, tuple, deque])
    def test_every_kind_of_sequence_is_taken(self, kind: Callable[[list[Any]], Any]) -> None:
        frame = encode(
            kind([b"a", b"b"]),
            timestamp=kind([1, 2]),
            keys=kind([b"k", None]),
            headers=kind([None, {"n": b"v"}]),
            expires_at=kind([None, 3]),
            dedup_ids=kind(["d", None]),
            origin_ids=kind([None, "o"]),
        )
        first, second = read_back(frame).records()
        assert first == (0, 1, b"k", b"a", {}, None, "d", None)
        assert second == (1, 2, None, b"b", {"n": b"v"}, 3, None, "o")

    def test_a_column_of_two_gigabytes_is_refused_before_it_is_made(self) -> None:
        megabyte = bytes(2**20)
        with pytest.raises(InvalidRequest, match="at most 2147483647 bytes a column"):
            encode([megabyte] * 2048, timestamp=TIME)

    def test_a_batch_over_the_limit_is_refused(self) -> None:
        assert len(encode([bytes(8)], timestamp=TIME, raw_bytes_max=16)) == 1
        with pytest.raises(MessageTooLarge) as caught:
            encode([bytes(9)], timestamp=TIME, raw_bytes_max=16)
        assert (caught.value.size_bytes, caught.value.limit_bytes) == (24, 16)
        assert caught.value.setting == "frame_raw_bytes_max"

    def test_the_limit_counts_before_compression(self) -> None:
        with pytest.raises(MessageTooLarge):
            encode([bytes(1000)], timestamp=TIME, codec=Codec.ZSTD, raw_bytes_max=1000)


COLUMNS: dict[str, Any] = {
    "timestamp": [TIME, TIME],
    "keys": [b"k", None],
    "headers": [{"n": b"v"}, None],
    "expires_at": [TIME, None],
    "dedup_ids": ["d", None],
}


@pytest.mark.parametrize("name", COLUMNS)
class TestEveryColumn:
    @pytest.mark.parametrize("length", [0, 1, 3])
    def test_it_must_have_one_item_a_message(self, name: str, length: int) -> None:
        column = (COLUMNS[name] * 2)[:length]
        with pytest.raises(InvalidRequest, match=rf"{name} .*: {length} for 2 messages"):
            encode_anything([b"a", b"b"], **{name: column})

    def test_an_iterator_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidRequest, match=f"{name} must be a sequence"):
            encode_anything([b"a", b"b"], **{name: iter(COLUMNS[name])})

    def test_values_of_a_dict_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidRequest, match=f"{name} must be a sequence"):
            encode_anything([b"a", b"b"], **{name: dict(enumerate(COLUMNS[name])).values()})

    @pytest.mark.parametrize("text", ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab")])
    def test_a_string_is_not_a_column(self, name: str, text: object) -> None:
        with pytest.raises(InvalidRequest, match=f"{name} must be a sequence"):
            encode_anything([b"a", b"b"], **{name: text})

    def test_items_of_a_wrong_type_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidRequest):
            encode_anything([b"a", b"b"], **{name: [object(), object()]})
        with pytest.raises(InvalidRequest):
            encode_anything([b"a", b"b"], **{name: [COLUMNS[name][0], 1.5]})


class TestTimestamps:
    @pytest.mark.parametrize("time", [-(2**63), -1, 0, 2**63 - 1])
    def test_every_64_bit_number_is_taken(self, time: int) -> None:
        assert list(read_back(encode([b"a"], timestamp=time)).timestamps()) == [time]
        assert list(read_back(encode([b"a"], timestamp=[time])).timestamps()) == [time]
        assert list(read_back(encode([b"a"], timestamp=0, expires_at=[time])).expires_at()) == [time]

    @pytest.mark.parametrize("time", [-(2**63) - 1, 2**63, 2**100])
    def test_a_larger_one_is_refused(self, time: int) -> None:
        for columns in ({"timestamp": time}, {"timestamp": [time]}, {"expires_at": [time]}):
            with pytest.raises(InvalidRequest, match="64-bit integers"):
                encode_anything([b"a"], **columns)

    @pytest.mark.parametrize("time", [None, 1.5, "now", object(), [None], [1.5], ["now"]])
    def test_what_is_not_a_number_is_refused(self, time: object) -> None:
        with pytest.raises(InvalidRequest, match="timestamp"):
            encode_anything([b"a"], timestamp=time)

    def test_the_header_has_the_smallest_and_the_largest(self) -> None:
        header = encode([b"a", b"b", b"c"], timestamp=[5, -3, 4]).header
        assert (header.timestamp_min, header.timestamp_max) == (-3, 5)

    def test_one_time_for_all_takes_no_column(self) -> None:
        frame = encode([b"a", b"b"], timestamp=7)
        assert not frame.header.columns & Column.TIMESTAMP
        assert list(frame.timestamps()) == [7, 7]


class TestKeys:
    @pytest.mark.parametrize("key", ["text", 5, [1]])
    def test_what_is_not_bytes_is_named_with_its_place(self, key: object) -> None:
        kind = type(key).__name__
        with pytest.raises(InvalidRequest, match=f"key 1 .* is a {kind} where bytes belong"):
            encode_anything([b"a", b"b"], keys=[None, key])

    def test_no_key_is_not_an_empty_key(self) -> None:
        keys = [None, b"", b"k"]
        assert list(read_back(encode([b"a", b"b", b"c"], timestamp=1, keys=keys)).keys()) == keys


class TestHeaders:
    @pytest.mark.parametrize(
        "headers",
        [
            pytest.param({1: b"v"}, id="a number for a name"),
            pytest.param({b"n": b"v"}, id="bytes for a name"),
            pytest.param({None: b"v"}, id="None for a name"),
            pytest.param({"\ud800": b"v"}, id="a lone surrogate"),
            pytest.param([("n", b"v")], id="a list of pairs"),
            pytest.param("n", id="a string"),
            pytest.param(5, id="a number"),
            pytest.param(dict, id="a class"),
        ],
    )
    def test_what_is_not_a_mapping_of_text_is_refused(self, headers: object) -> None:
        with pytest.raises(InvalidRequest, match="headers must be a mapping of str to bytes"):
            encode_anything([b"a"], headers=[headers])

    @pytest.mark.parametrize("value", ["v", None, 5])
    def test_a_value_that_is_not_bytes_is_refused(self, value: object) -> None:
        kind = type(value).__name__
        with pytest.raises(InvalidRequest, match=f"header value 1 .* is a {kind} where bytes belong"):
            encode_anything([b"a"], headers=[{"n": b"v", "m": value}])

    def test_headers_of_a_single_message_are_not_a_column(self) -> None:
        with pytest.raises(InvalidRequest, match="headers must be a sequence"):
            encode_anything([b"a"], headers={"n": b"v"})

    def test_names_and_values_come_back_in_order(self) -> None:
        headers = [{"b": b"1", "a": b"", "größe": b"\xff"}, None, {}, {"": b"empty name"}]
        frame = read_back(encode([b""] * 4, timestamp=1, headers=headers))
        assert list(frame.headers()) == [h or {} for h in headers]
        assert list(next(iter(frame.headers()))) == ["b", "a", "größe"]


class TestDedupIds:
    @pytest.mark.parametrize("given", [5, b"bytes", "\udc80", 1.5])
    def test_what_is_not_text_is_refused(self, given: object) -> None:
        with pytest.raises(InvalidRequest, match="dedup_id must be a str"):
            encode_anything([b"a"], dedup_ids=[given])

    def test_no_id_is_not_an_empty_id(self) -> None:
        ids = [None, "", "№"]
        assert list(read_back(encode([b""] * 3, timestamp=1, dedup_ids=ids)).dedup_ids()) == ids


class TestColumnsThatNobodyUses:
    @pytest.mark.parametrize(
        "columns",
        [
            {"keys": [None, None]},
            {"headers": [None, None]},
            {"headers": [{}, None]},
            {"headers": [{}, {}]},
            {"expires_at": [None, None]},
            {"dedup_ids": [None, None]},
        ],
        ids=str,
    )
    def test_they_cost_nothing(self, columns: dict[str, Any]) -> None:
        plain = encode([b"a", b"b"], timestamp=TIME)
        assert bytes(encode_anything([b"a", b"b"], **columns)) == bytes(plain)


class TestProducer:
    def test_its_fields_go_into_the_header(self) -> None:
        largest = Producer(2**64 - 1, 2**16 - 1, 2**32 - 1)
        header = read_back(encode([b"a"], timestamp=1, producer=largest)).header
        assert header.producer_id == 2**64 - 1
        assert header.producer_epoch == 2**16 - 1
        assert header.base_sequence == 2**32 - 1

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("producer_id", -1),
            ("producer_id", 2**64),
            ("epoch", -1),
            ("epoch", 2**16),
            ("base_sequence", -1),
            ("base_sequence", 2**32),
        ],
    )
    def test_a_number_that_does_not_fit_is_refused(self, name: str, value: int) -> None:
        with pytest.raises(InvalidRequest, match=f"{name} .* {value}"):
            Producer(**{name: value})


class TestControl:
    @pytest.mark.parametrize("record", [b"", b"seven b", b"eight by", b'{"kind": "gap"}'])
    def test_it_takes_offsets_and_carries_a_record(self, record: bytes) -> None:
        frame = read_back(encode_control(record, count=2**32 - 1, timestamp=TIME))
        assert frame.is_control
        assert len(frame) == 2**32 - 1
        assert bytes(frame.raw).rstrip(b"\0") == record
        assert len(frame.raw) % 8 == 0
        assert frame.values() == []
        assert frame.records() == []

    @pytest.mark.parametrize("count", [-1, 0, 2**32])
    def test_a_count_that_no_header_holds_is_refused(self, count: int) -> None:
        with pytest.raises(InvalidRequest, match="1 to 4294967295 offsets"):
            encode_control(b"", count=count, timestamp=TIME)

    def test_a_time_that_no_header_holds_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="64-bit"):
            encode_control(b"", count=1, timestamp=2**63)


class TestFirstMessages:
    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_they_are_what_they_were(self, codec: Codec, count: int) -> None:
        frame = encode(
            [b"a" * 300, b"b" * 300, b"c" * 300],
            timestamp=[3, 1, 2],
            keys=[b"k", None, b""],
            headers=[None, {"n": b"v"}, {}],
            expires_at=[None, 5, 6],
            dedup_ids=["d", None, "e"],
            codec=codec,
            producer=Producer(7, 8, 9),
        ).stamped(100, 200, 300)
        assert frame.header.codec == codec
        head = read_back(first_messages(frame, count))
        assert head.records() == frame.records()[:count]
        kept = ("append_time", "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "codec")
        assert {n: getattr(head.header, n) for n in kept} == {n: getattr(frame.header, n) for n in kept}

    @pytest.mark.parametrize("timestamp", [5, [5, 6]])
    def test_all_of_them_are_the_same_frame(self, timestamp: int | list[int]) -> None:
        frame = encode([b"a", b"b"], timestamp=timestamp, keys=[b"k", None]).stamped(9, 9)
        assert bytes(first_messages(frame, 2)) == bytes(frame)

    def test_one_time_for_all_stays_one_time_for_all(self) -> None:
        head = first_messages(encode([b"a", b"b"], timestamp=5), 1)
        assert bytes(head) == bytes(encode([b"a"], timestamp=5))

    def test_a_frame_over_the_usual_limit_can_be_divided(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.modules["quivermq.frame.encode"], "RAW_BYTES_MAX", 16)
        assert encode.__kwdefaults__ is not None
        monkeypatch.setitem(encode.__kwdefaults__, "raw_bytes_max", 16)
        frame = encode([b"a" * 100, b"b" * 100], timestamp=1, raw_bytes_max=1000)
        parsed = Frame.parse(bytes(frame), raw_bytes_max=1000)
        assert first_messages(parsed, 1).values() == [b"a" * 100]

    def test_flags_stay(self) -> None:
        raw = int32s(0, 1) + padded(b"v")
        frame = Frame.parse(forged(raw, flags=Flag.TRANSACTIONAL))
        assert first_messages(frame, 1).header.flags == Flag.TRANSACTIONAL

    def test_a_gap_becomes_a_smaller_gap(self) -> None:
        gap = encode_control(b'{"kind": "gap"}', count=10, timestamp=TIME).stamped(50, TIME + 1)
        head = read_back(first_messages(gap, 4))
        assert head.is_control
        assert (head.header.base_offset, head.header.end_offset) == (50, 54)
        assert bytes(head.raw) == bytes(gap.raw)
        assert head.header.append_time == TIME + 1

    def test_a_frame_that_lies_is_not_divided(self) -> None:
        frame = Frame.parse(forged(int32s(0, 9) + padded(b"v")))
        with pytest.raises(InvalidFrame):
            first_messages(frame, 1)


class TestLoneFrame:
    @pytest.mark.parametrize("length", [*range(17), 100, 4096, 70_000])
    def test_a_value_is_what_it_would_be_in_a_frame_that_is_stamped(self, length: int) -> None:
        value = bytes(place % 255 + 1 for place in range(length))
        frame = lone_frame(value)
        data = frame.at(2**40, TIME)
        assert data == bytes(encode([value], timestamp=TIME).stamped(2**40, TIME))
        assert len(data) == HEADER_BYTES + len(frame.stored)
        assert Frame.parse(data).values() == [value]

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.LZ4])
    @pytest.mark.parametrize("headers", [None, {}, {"n": b"v"}, {"n": b"v", "é": b"", "m" * 300: b"x" * 9}])
    @pytest.mark.parametrize("key", [None, b"", b"key", bytes(16)])
    def test_so_is_a_message_with_everything(
        self, key: bytes | None, headers: dict[str, bytes] | None, codec: Codec
    ) -> None:
        for expires_at, dedup_id in ((None, None), (-7, "é"), (2**60, "")):
            whole = encode(
                [b"value" * 40],
                timestamp=5,
                keys=[key],
                headers=[headers],
                expires_at=[expires_at],
                dedup_ids=[dedup_id],
                codec=codec,
            )
            frame = lone_frame(b"value" * 40, EntryFields(key, headers, 5, expires_at, dedup_id), codec)
            assert frame.at(3, TIME) == bytes(whole.stamped(3, TIME))

    def test_names_are_what_they_are_however_often_they_came_before(self) -> None:
        for names in (("a", "bc"), ("ab", "c"), ("a", "bc")):
            data = lone_frame(b"", EntryFields(headers=dict.fromkeys(names, b""))).at(0, TIME)
            assert list(Frame.parse(data).headers()) == [dict.fromkeys(names, b"")]


# Parts.


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"keys": [b"k", None, b"", b"l"], "headers": [{"a": b"1"}, None, {}, {"b": b""}]},
        {"expires_at": [None, 5, 6, None], "dedup_ids": ["x", None, "y", None]},
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(("start", "end"), [(10, 14), (10, 11), (11, 13), (13, 14)])
def test_a_part_of_a_frame_has_the_same_messages(
    columns: dict[str, Any], codec: Codec, start: int, end: int
) -> None:
    values = [b"first" * 50, b"", b"third" * 50, b"last"]
    whole = encode(values, timestamp=7, codec=codec, **columns).stamped(10, 99)
    part = read_back(part_of(whole, start, end))
    assert part.records() == whole.records()[start - 10 : end - 10]
    assert (part.header.base_offset, part.header.append_time, len(part)) == (start, 99, end - start)


@pytest.mark.parametrize("columns", [{}, {"keys": [b"k", None]}, {"expires_at": [None, 5]}])
def test_messages_that_would_never_expire_are_given_a_time(columns: dict[str, Any]) -> None:
    sent = encode([b"a", b"b"], timestamp=[3, 4], producer=Producer(7, 1, 2), **columns)
    given = read_back(with_expiry(sent, 99))
    before = columns.get("expires_at", [None, None])
    assert list(given.expires_at()) == [99 if time is None else time for time in before]
    assert [r._replace(expires_at=None) for r in given.records()] == [
        r._replace(expires_at=None) for r in sent.records()
    ]
    assert (given.header.producer_id, given.header.producer_epoch, given.header.base_sequence) == (7, 1, 2)


class TestHeadersOfManyMessages:
    """Headers that are alike are repeated, or compared as a whole: what is stored is the same."""

    def check(self, given: Sequence[dict[str, bytes] | None]) -> None:
        frame = read_back(encode([b"v"] * len(given), timestamp=TIME, headers=given))
        found = list(frame.headers())
        assert found == [each or {} for each in given]
        assert [list(each) for each in found] == [list(each or {}) for each in given]

    @pytest.mark.parametrize("count", [1, 2, 9, 100, 2000])
    def test_they_come_back_in_their_order(self, count: int) -> None:
        shared = {"b": b"1", "a": b"22"}
        self.check([shared] * count)
        self.check([dict(shared) for _ in range(count)])
        self.check([{"b": b"1", "a": b"%d" % i} for i in range(count)])
        self.check([{"b": b"x" * (i % 3), "ä": b"%04d" % i} for i in range(count)])
        self.check([{f"n{i}": b"1"} for i in range(count)])
        self.check([shared] * count + [{"a": b"22", "b": b"1"}])
        self.check([*([dict(shared)] * count), {"a": b"22", "b": b"1"}, dict(shared)])

    def test_names_that_run_on_from_one_message_to_the_next_are_not_mistaken(self) -> None:
        self.check([{"a": b"1", "b": b"2"}, {"a": b"3"}, {"b": b"4"}, {"a": b"5", "b": b"6"}])
        self.check([{"a": b"1", "b": b"2"}, {}, {"a": b"3", "b": b"4"}, None])
        self.check([{}, {"a": b"1"}, {"b": b"2"}])
        self.check([{"a": b"1"}, {"a": b"2", "b": b"3"}, {"a": b"4"}])

    def test_a_bad_one_among_good_ones_is_refused(self) -> None:
        good = {"a": b"1"}
        wrong: list[Any] = [{"a": "1"}, {"a": None}, {1: b"1"}, {"\ud800": b"1"}, {"a": 1}]
        for bad in wrong:
            for given in ([good] * 9 + [bad], [bad] + [good] * 9, [bad] * 10):
                with pytest.raises(InvalidRequest):
                    encode([b"v"] * 10, timestamp=TIME, headers=given)
