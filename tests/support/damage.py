"""What happens to files behind everybody's back."""

from pathlib import Path


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    """Change bits of one byte."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Put other bytes where bytes are."""
    old = path.read_bytes()
    path.write_bytes(old[:position] + data + old[position + len(data) :])


def insert(path: Path, position: int, data: bytes) -> None:
    """Put bytes in between, so that everything behind moves."""
    old = path.read_bytes()
    path.write_bytes(old[:position] + data + old[position:])


def remove(path: Path, position: int, end: int) -> None:
    """Take the bytes [position, end) out, so that everything behind moves."""
    old = path.read_bytes()
    path.write_bytes(old[:position] + old[end:])


def cut(path: Path, size: int) -> None:
    """Lose everything from `size` on."""
    path.write_bytes(path.read_bytes()[:size])
