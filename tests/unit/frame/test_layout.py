"""Every lie that a body can tell, one a test: each is refused at its place before anybody believes it."""

import pytest
from vectors import forged, int32s, int64s, padded

from quivermq.errors import InvalidFrame
from quivermq.frame import Column, Frame
from quivermq.frame.layout import Layout, layout, presence

pytestmark = pytest.mark.fault("hostile", "engine")

VALUE = int32s(0, 1) + padded(b"v")
TWO_VALUES = int32s(0, 1, 2) + padded(b"vw")
ONE_BIT = padded(b"\1")


def laid_out(body: bytes, columns: int = 0, count: int = 1) -> Layout:
    return layout(memoryview(body), Column.VALUE | columns, count)


def refuse(body: bytes, reason: str, position: int, columns: int = 0, count: int = 1) -> None:
    with pytest.raises(InvalidFrame, match=reason) as caught:
        laid_out(body, columns, count)
    assert caught.value.position == position


class TestValue:
    def test_it_is_offsets_and_data(self) -> None:
        column = laid_out(int32s(0, 1, 1, 4) + padded(b"abcd"), count=3).value
        assert column.values() == [b"a", b"", b"bcd"]
        assert column.validity is None
        assert bytes(column.data) == b"abcd"
        assert bytes(column.offsets_buffer) == int32s(0, 1, 1, 4)

    def test_the_first_offset_is_0(self) -> None:
        refuse(int32s(1, 1) + padded(b"v"), "do not run upwards from 0", 0)

    def test_the_first_offset_is_not_negative(self) -> None:
        refuse(int32s(-1, 1) + padded(b"v"), "do not run upwards from 0", 0)

    def test_no_offset_is_smaller_than_the_one_before(self) -> None:
        refuse(int32s(0, 2, 1) + padded(b"vw"), "do not run upwards from 0", 0, count=2)

    def test_not_even_when_the_last_one_is_right(self) -> None:
        refuse(int32s(0, 9, 1, 2) + padded(b"vw"), "do not run upwards from 0", 0, count=3)

    def test_no_offset_is_negative(self) -> None:
        refuse(int32s(0, -1, 1) + padded(b"v"), "do not run upwards from 0", 0, count=2)
        refuse(int32s(0, -8) + padded(b"v"), "do not run upwards from 0", 0)

    @pytest.mark.parametrize("length", [9, 16, 2**31 - 1])
    def test_the_data_ends_inside_the_body(self, length: int) -> None:
        refuse(int32s(0, length) + padded(b"v"), f"of {length} bytes runs past the end", 8)

    def test_the_offsets_end_inside_the_body(self) -> None:
        refuse(int32s(0, 0), "of 16 bytes runs past the end", 0, count=3)

    def test_the_padding_of_the_data_ends_inside_the_body(self) -> None:
        refuse(int32s(0, 1) + b"v", "runs past the end", 8)

    @pytest.mark.parametrize("place", range(1, 8))
    def test_the_padding_behind_the_data_is_zero(self, place: int) -> None:
        data = bytearray(padded(b"v"))
        data[place] = 0x80
        refuse(int32s(0, 1) + bytes(data), "padding is not zero", 9)

    def test_the_padding_behind_the_offsets_is_zero(self) -> None:
        body = bytearray(TWO_VALUES)
        body[15] = 1
        refuse(bytes(body), "padding is not zero", 12, count=2)

    def test_nothing_is_left_over(self) -> None:
        refuse(VALUE + bytes(8), "left over", 16)
        refuse(VALUE + VALUE, "left over", 16)

    def test_a_body_of_nothing_is_refused(self) -> None:
        refuse(b"", "runs past the end", 0)


class TestRepeatedLengths:
    """Columns whose lengths repeat themselves are taken out in one call, and checked as the others are."""

    @pytest.mark.parametrize("length", [0, 1, 3])
    def test_it_is_what_one_by_one_would_be(self, length: int) -> None:
        data = bytes(range(10 * length))
        column = laid_out(
            int32s(*range(0, 10 * length + 1, length or 1)[:11] if length else [0] * 11) + padded(data),
            count=10,
        ).value
        assert column.unpack is not None
        assert column.values() == [data[i * length : (i + 1) * length] for i in range(10)]
        assert list(column.offsets) == [i * length for i in range(11)]

    def test_lengths_that_only_seem_to_repeat_themselves(self) -> None:
        offsets = [0, 2, 3, *range(6, 21, 2)]
        column = laid_out(int32s(*offsets) + padded(bytes(20)), count=10).value
        assert column.unpack is None
        assert list(map(len, column.values())) == [2, 1, 3, 2, 2, 2, 2, 2, 2, 2]

    @pytest.mark.parametrize(
        "offsets",
        [
            [-2, *range(0, 19, 2), 20],
            [0, 2, 9, 3, *range(8, 21, 2)],
            [0, -2, *range(2, 17, 2), -20],
            [-(2**31), 2, *range(4, 21, 2), 20],
        ],
    )
    def test_a_lie_is_one_all_the_same(self, offsets: list[int]) -> None:
        refuse(int32s(*offsets) + padded(bytes(20)), "do not run upwards from 0", 0, count=len(offsets) - 1)

    def test_the_data_ends_inside_the_body(self) -> None:
        refuse(int32s(*range(0, 81, 8)) + bytes(72), "of 80 bytes runs past the end", 48, count=10)


class TestBitmap:
    COLUMNS = Column.EXPIRES_AT

    @pytest.mark.parametrize("count", [1, 7, 8, 9, 15, 16, 17, 64, 65])
    def test_each_bit_is_a_message(self, count: int) -> None:
        values = bytes(4 * (count + 1))
        for place in {0, count // 2, count - 1}:
            bits = (1 << place).to_bytes((count + 7) // 8, "little")
            body = padded(values) + padded(bits) + bytes(8 * count)
            column = laid_out(body, self.COLUMNS, count).expires_at
            assert column is not None
            present = [at for at, there in enumerate(presence(column.validity, count)) if there]
            assert present == [place]

    @pytest.mark.parametrize("count", [1, 7, 9, 15, 63])
    @pytest.mark.parametrize("behind", [0, -1])
    def test_no_bit_lies_behind_the_last_message(self, count: int, behind: int) -> None:
        values = padded(bytes(4 * (count + 1)))
        length = (count + 7) // 8
        bit = count if behind == 0 else 8 * length - 1
        bits = (1 << bit).to_bytes(length, "little")
        body = values + padded(bits) + bytes(8 * count)
        refuse(body, "bits behind its last message", len(values), self.COLUMNS, count)

    def test_a_whole_byte_behind_the_last_message_is_padding(self) -> None:
        values = padded(bytes(4 * 9))
        body = values + b"\xff\x01" + bytes(6) + bytes(64)
        refuse(body, "padding is not zero", len(values) + 1, self.COLUMNS, count=8)


class TestKey:
    def test_it_is_a_bitmap_offsets_and_data(self) -> None:
        body = TWO_VALUES + padded(b"\2") + int32s(0, 0, 3) + padded(b"key")
        column = laid_out(body, Column.KEY, count=2).key
        assert column is not None
        assert column.nullable_values(2) == [None, b"key"]

    def test_bytes_of_a_key_that_is_not_there_are_ignored(self) -> None:
        column = laid_out(VALUE + bytes(8) + int32s(0, 3) + padded(b"old"), Column.KEY).key
        assert column is not None
        assert column.nullable_values(1) == [None]

    def test_its_offsets_and_data_are_checked(self) -> None:
        refuse(VALUE + ONE_BIT + int32s(1, 1) + padded(b"k"), "upwards from 0", 24, Column.KEY)
        refuse(VALUE + ONE_BIT + int32s(0, 9) + padded(b"k"), "runs past the end", 32, Column.KEY)
        refuse(VALUE + ONE_BIT + int32s(0, 1) + b"k" + bytes(6) + b"x", "padding", 33, Column.KEY)

    def test_it_is_not_text(self) -> None:
        column = laid_out(VALUE + ONE_BIT + int32s(0, 1) + padded(b"\xff"), Column.KEY).key
        assert column is not None
        assert column.values() == [b"\xff"]

    def test_without_its_bit_it_is_left_over(self) -> None:
        refuse(VALUE + ONE_BIT + int32s(0, 0), "left over", 16)


class TestHeaders:
    def test_it_is_a_list_of_pairs(self) -> None:
        names, values = int32s(0, 1, 2, 4) + padded(b"abcc"), int32s(0, 0, 1, 3) + padded(b"122")
        pairs = laid_out(TWO_VALUES + int32s(0, 1, 3) + names + values, Column.HEADERS, count=2).headers
        assert pairs is not None
        assert pairs.offsets == [0, 1, 3]
        assert pairs.names.values() == [b"a", b"b", b"cc"]
        assert pairs.values.values() == [b"", b"1", b"22"]

    @pytest.mark.parametrize(
        ("lists", "names", "values", "reason", "position"),
        [
            (int32s(1, 1), int32s(0), int32s(0), "upwards from 0", 16),
            (int32s(0, -1), int32s(0), int32s(0), "upwards from 0", 16),
            (int32s(0, 2**31 - 1), int32s(0), int32s(0), "of 8589934592 bytes runs past", 24),
            (int32s(0, 1), int32s(1, 1), int32s(0, 0), "upwards from 0", 24),
            (int32s(0, 1), int32s(0, 99), int32s(0, 0), "of 99 bytes runs past", 32),
            (int32s(0, 1), int32s(0, 1) + padded(b"n"), int32s(2, 1), "upwards from 0", 40),
            (int32s(0, 1), int32s(0, 1) + padded(b"n"), int32s(0, 9), "of 9 bytes runs past", 48),
            (int32s(0, 1), int32s(0, 1) + b"n" + b"x" * 7, int32s(0, 0), "padding", 33),
            (int32s(0, 1), int32s(0, 1) + padded(b"n"), int32s(0, 1) + b"v" + b"x" * 7, "padding", 49),
        ],
    )
    def test_each_of_its_buffers_is_checked(
        self, lists: bytes, names: bytes, values: bytes, reason: str, position: int
    ) -> None:
        refuse(VALUE + lists + names + values, reason, position, Column.HEADERS)

    def test_its_names_are_text_and_its_values_are_not(self) -> None:
        odd = int32s(0, 1) + padded(b"\xff")
        even = int32s(0, 1) + padded(b"n")
        assert laid_out(VALUE + int32s(0, 1) + even + odd, Column.HEADERS).headers is not None
        refuse(VALUE + int32s(0, 1) + odd + even, "not UTF-8", 24, Column.HEADERS)


class TestTimestamp:
    def test_it_is_one_number_a_message(self) -> None:
        column = laid_out(TWO_VALUES + int64s(5, -6), Column.TIMESTAMP, count=2).timestamp
        assert column is not None
        assert column.values() == [5, -6]

    def test_it_ends_inside_the_body(self) -> None:
        refuse(TWO_VALUES + int64s(5), "of 16 bytes runs past the end", 24, Column.TIMESTAMP, count=2)

    @pytest.mark.parametrize(("low", "high"), [(5, 8), (4, 7), (6, 6), (7, 7)])
    def test_the_header_has_its_smallest_and_largest(self, low: int, high: int) -> None:
        columns = Column.VALUE | Column.TIMESTAMP
        fields = {"columns": columns, "message_count": 2}
        body = TWO_VALUES + int64s(7, 5)
        good = Frame.parse(forged(body, **fields, timestamp_min=5, timestamp_max=7))
        assert list(good.timestamps()) == [7, 5]
        bad = Frame.parse(forged(body, **fields, timestamp_min=low, timestamp_max=high))
        with pytest.raises(InvalidFrame, match="other timestamps than the column"):
            bad.validate()

    def test_without_it_the_header_has_one_time(self) -> None:
        frame = Frame.parse(forged(VALUE, timestamp_min=5, timestamp_max=6))
        with pytest.raises(InvalidFrame, match="their column is missing"):
            frame.validate()


class TestExpiresAt:
    def test_it_is_a_bitmap_and_numbers(self) -> None:
        body = TWO_VALUES + padded(b"\2") + int64s(99, -7)
        column = laid_out(body, Column.EXPIRES_AT, count=2).expires_at
        assert column is not None
        assert column.values() == [99, -7]
        assert list(presence(column.validity, 2)) == [False, True]

    def test_its_bitmap_and_numbers_are_checked(self) -> None:
        refuse(VALUE + padded(b"\2") + int64s(1), "bits behind", 16, Column.EXPIRES_AT)
        refuse(VALUE + ONE_BIT, "of 8 bytes runs past the end", 24, Column.EXPIRES_AT)


class TestText:
    COLUMNS = Column.DEDUP_ID

    def body(self, *texts: bytes) -> bytes:
        count = len(texts)
        ends = [sum(map(len, texts[: i + 1])) for i in range(count)]
        bits = padded(((1 << count) - 1).to_bytes((count + 7) // 8, "little"))
        return padded(bytes(4 * (count + 1))) + bits + int32s(0, *ends) + padded(b"".join(texts))

    @pytest.mark.parametrize(
        "texts", [["a"], ["", ""], ["é", "鍵", "😀"], ["", "é", ""], ["é", ""], ["", "", "é"]]
    )
    def test_utf_8_is_accepted(self, texts: list[str]) -> None:
        body = self.body(*(text.encode() for text in texts))
        column = laid_out(body, self.COLUMNS, len(texts)).dedup_id
        assert column is not None
        assert [value.decode() for value in column.values()] == texts

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param(b"\xff", id="no such byte"),
            pytest.param(b"\xc3", id="half a character"),
            pytest.param(b"\xa9", id="the other half"),
            pytest.param(b"\xed\xa0\x80", id="a surrogate"),
            pytest.param(b"\xc0\x80", id="overlong"),
            pytest.param(b"\xf4\x90\x80\x80", id="beyond Unicode"),
        ],
    )
    def test_what_is_not_utf_8_is_refused(self, text: bytes) -> None:
        refuse(self.body(text), "not UTF-8", 16, self.COLUMNS)
        refuse(self.body(b"a", text, b"b"), "not UTF-8", 24, self.COLUMNS, count=3)

    @pytest.mark.parametrize(
        "halves", [(b"\xc3", b"\xa9"), (b"\xf0\x9f", b"\x98\x80"), (b"a\xc3", b"\xa9b")]
    )
    def test_a_character_is_not_divided_among_two_strings(self, halves: tuple[bytes, bytes]) -> None:
        refuse(self.body(*halves), "begins inside a character", 24, self.COLUMNS, count=2)
        refuse(self.body(halves[0], b"", halves[1]), "inside a character", 24, self.COLUMNS, count=3)
        refuse(self.body(b"", *halves, b""), "inside a character", 32, self.COLUMNS, count=4)

    def test_an_id_that_is_not_there_is_text_all_the_same(self) -> None:
        body = VALUE + bytes(8) + int32s(0, 1) + padded(b"\xff")
        refuse(body, "not UTF-8", 24, self.COLUMNS)

    def test_its_bitmap_is_checked(self) -> None:
        refuse(VALUE + padded(b"\4") + int32s(0, 0), "bits behind", 16, self.COLUMNS)


class TestShallow:
    """Without a look inside, every buffer still lies where the numbers say, and inside the body."""

    def refuse(self, body: bytes, reason: str, columns: int = 0, count: int = 1) -> None:
        with pytest.raises(InvalidFrame, match=reason):
            layout(memoryview(body), Column.VALUE | columns, count, deep=False)

    def test_the_ends_of_the_offsets_are_checked(self) -> None:
        self.refuse(int32s(1, 1) + padded(b"v"), "upwards from 0")
        self.refuse(int32s(0, -8) + padded(b"v"), "upwards from 0")
        self.refuse(int32s(0, 9) + padded(b"v"), "runs past the end")

    def test_a_negative_length_does_not_lead_back(self) -> None:
        # Without the check, the key would be read from the offsets of the values.
        body = int32s(0, -8) + padded(b"\1") + int32s(0, 0)
        self.refuse(body, "upwards from 0", Column.KEY)
        self.refuse(VALUE + int32s(0, -1) + int32s(0), "upwards from 0", Column.HEADERS)

    def test_padding_bits_and_the_end_are_checked(self) -> None:
        self.refuse(int32s(0, 1) + b"v" + b"x" * 7, "padding is not zero")
        self.refuse(VALUE + padded(b"\2") + int64s(1), "bits behind", Column.EXPIRES_AT)
        self.refuse(VALUE + bytes(8), "left over")

    def test_the_inside_is_left_to_whoever_follows_it(self) -> None:
        backwards = int32s(0, 9, 1, 2) + padded(b"vw")
        found = layout(memoryview(backwards), Column.VALUE, 3, deep=False)
        assert bytes(found.value.data) == b"vw"


def test_columns_lie_in_the_order_of_their_bits() -> None:
    body = (
        VALUE
        + ONE_BIT
        + int32s(0, 1)
        + padded(b"k")
        + int32s(0, 1)
        + int32s(0, 1)
        + padded(b"n")
        + int32s(0, 1)
        + padded(b"h")
        + int64s(5)
        + ONE_BIT
        + int64s(6)
        + ONE_BIT
        + int32s(0, 1)
        + padded(b"d")
    )
    found = laid_out(body, 63)
    assert found.value.values() == [b"v"]
    assert found.key is not None
    assert found.key.values() == [b"k"]
    assert found.headers is not None
    assert (found.headers.names.values(), found.headers.values.values()) == ([b"n"], [b"h"])
    assert found.timestamp is not None
    assert found.timestamp.values() == [5]
    assert found.expires_at is not None
    assert found.expires_at.values() == [6]
    assert found.dedup_id is not None
    assert found.dedup_id.values() == [b"d"]


def test_columns_that_are_not_there_are_none() -> None:
    found = laid_out(VALUE)
    assert found[1:] == (None,) * 6
