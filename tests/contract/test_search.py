"""Finding messages in the log by their key, or by what is in them."""

from typing import Any

import pytest
from contract.wrong import mistakes

import quivermq
from quivermq.server import answers


def offsets(messages: Any) -> list[int]:
    return [message.offset for message in messages]


@pytest.fixture
def filled(orders: Any) -> Any:
    messages = [
        quivermq.Message(
            b'{"order": %d}' % number, key=b"k%d" % (number % 3), headers={"trace": b"t-%d;" % number}
        )
        for number in range(12)
    ]
    orders.put_many(messages[:5])
    orders.put_many(messages[5:])
    return orders


def test_messages_are_found_by_their_key(filled: Any) -> None:
    assert offsets(filled.read(key=b"k1")) == [1, 4, 7, 10]
    assert offsets(filled.read(start=2, limit=2, key=b"k1")) == [4, 7]
    assert filled.read(key=b"k") == []
    assert filled.read(key=b"") == []


def test_messages_are_found_by_what_is_in_them(filled: Any) -> None:
    assert offsets(filled.read(text=b'"order": 1')) == [1, 10, 11]
    assert offsets(filled.read(text=b"t-7;")) == [7]
    assert offsets(filled.read(text=b"k2")) == [2, 5, 8, 11]
    assert offsets(filled.read(key=b"k2", text=b": 1")) == [11]
    assert filled.read(text=b"ORDER") == []
    assert offsets(filled.read(text=b"")) == list(range(12))


def test_what_lies_over_the_end_of_a_message_is_not_in_it(filled: Any) -> None:
    assert filled.read(text=b'0}{"order') == []
    assert filled.read(text=b"k0k1") == []
    assert filled.read(text=b";t-") == []


def test_any_bytes_can_be_looked_for(orders: Any) -> None:
    orders.put_many([quivermq.Message(b"\xff\x00", key=b"\xfe"), quivermq.Message(b"", key=b"")])
    orders.put(b"no key")
    assert offsets(orders.read(text=b"\xff\x00")) == [0]
    assert offsets(orders.read(key=b"\xfe")) == [0]
    assert offsets(orders.read(key=b"")) == [1]


def test_a_search_goes_on_however_little_one_call_looks_at(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_SEARCHED_BYTES", 1)
    filled.put(b"the last")
    assert offsets(filled.read(text=b"last")) == [12]
    assert offsets(filled.read(key=b"k1")) == [1, 4, 7, 10]
    assert filled.read(text=b"nowhere") == []


def test_dead_letters_that_are_gone_are_not_found(mq: Any, orders: Any) -> None:
    orders.put_many([b"one", b"two"])
    orders.reject(orders.get_many(2))
    assert orders.redrive(limit=1) == 1
    assert offsets(mq.queue("orders.dlq").read(text=b"o")) == [1]


WRONG: list[tuple[Any, type[quivermq.QuiverError]]] = [
    (lambda q: q.read(text="text"), quivermq.InvalidRequest),
    (lambda q: q.read(key="key"), quivermq.InvalidRequest),
    (lambda q: q.read(key=5), quivermq.InvalidRequest),
    (lambda q: q.read(start=99, text=b"x"), quivermq.OffsetOutOfRange),
]


def test_what_is_wrong_is_named(filled: Any) -> None:
    assert mistakes(WRONG, filled) == []
