"""A gzip stream out of parts that many streams share."""

import gzip
import zlib

import pytest
from unit.server.test_events import Listener

from quivermq.server.events import GzipStream, accepts_gzip, compressed


def test_parts_fit_together_in_any_order_and_the_end_is_checked() -> None:
    parts = [b"one" * 100, b"", b"two" * 50, b"one" * 100]
    listener = Listener()
    stream = GzipStream(listener)
    for part in parts:
        assert stream.write(part, compressed(part))
    stream.close()
    assert listener.is_closed
    assert gzip.decompress(b"".join(listener.sent)) == b"".join(parts)


def test_a_reader_sees_each_part_when_it_comes() -> None:
    listener = Listener()
    stream = GzipStream(listener)
    reader = zlib.decompressobj(wbits=31)
    for part in (b"event: a\n\n", b"event: b\n\n"):
        stream.write(part, compressed(part))
        assert reader.decompress(listener.sent[-1]) == part


def test_nothing_is_written_to_who_does_not_keep_up() -> None:
    listener = Listener()
    stream = GzipStream(listener)
    stream.write(b"x", compressed(b"x"))
    listener.is_paused = True
    assert not stream.write(b"y", compressed(b"y"))
    stream.close()
    assert len(listener.sent) == 1


@pytest.mark.parametrize(
    ("accepted", "is_accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("br, gzip; q=0.0", False),
        ("x-gzipped", False),
    ],
)
def test_gzip_is_sent_to_those_who_take_it(accepted: str, is_accepted: bool) -> None:
    assert accepts_gzip(accepted) == is_accepted
