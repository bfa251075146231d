import pytest

from quivermq.cli.output import shown, size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1024.0 KiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2 * 1024**4, "2.0 TiB"),
        (3 * 1024**5, "3072.0 TiB"),
    ],
)
def test_sizes_are_for_people(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "-"), (b"tea", "tea"), (b"a\nb", "a\\nb"), (b"\xff", "�"), (b"x" * 100, "x" * 9 + "…")],
)
def test_bytes_fit_into_a_cell(content: bytes | None, text: str) -> None:
    assert shown(content, 10) == text
