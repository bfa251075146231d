import io
from itertools import chain

import pytest

from quivermq.cli import incoming
from quivermq.cli.incoming import batches, whole
from quivermq.errors import InvalidRequest


class Slow(io.BytesIO):
    """A stream that has only so many bytes at a time."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(3)


@pytest.mark.parametrize("stream", [io.BytesIO, Slow])
@pytest.mark.parametrize(
    ("content", "pieces"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"one\n\ntwo\nthree and more", [b"one", b"", b"two", b"three and more"]),
        (b"a\r\nb\n", [b"a\r", b"b"]),
    ],
)
def test_pieces_are_what_lies_between_separators(
    stream: type[io.BytesIO], content: bytes, pieces: list[bytes]
) -> None:
    assert list(chain.from_iterable(batches(stream(content), b"\n"))) == pieces


def test_what_has_arrived_is_not_kept_waiting() -> None:
    assert list(batches(Slow(b"a\nb\nc\n"), b"\n")) == [[b"a"], [b"b", b"c"]]


def test_a_batch_has_at_most_a_thousand_messages() -> None:
    found = list(batches(io.BytesIO(b"x\n" * 2500), b"\n"))
    assert [len(batch) for batch in found] == [1000, 1000, 500]


def test_a_batch_has_at_most_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_BATCH_BYTES", 10)
    found = list(batches(io.BytesIO(b"four\nfour\nfour\nfourteen bytes\n\n"), b"\n"))
    assert found == [[b"four", b"four"], [b"four"], [b"fourteen bytes"], [b""]]


def test_a_stream_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PIECE_BYTES_MAX", 10)
    with pytest.raises(InvalidRequest, match="separator"):
        list(batches(Slow(b"x" * 100), b"\n"))
    with pytest.raises(InvalidRequest, match="10 bytes"):
        whole(io.BytesIO(b"x" * 11))
    assert whole(io.BytesIO(b"x" * 10)) == b"x" * 10
