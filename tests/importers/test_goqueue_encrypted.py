"""A GoQueue whose values are encrypted: with its key, with another, and with none."""

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from support.command_inside import quiver
from support.go_files import COMPRESSED, control, record, write_segment
from support.sources import DISK, problems

from quivermq.errors import InvalidRequest
from quivermq.importers.goqueue import open_encrypted, open_source

KEY = "00112233445566778899aabbccddeeff" * 2


def sealed(value: bytes, key: str = KEY) -> bytes:
    """As GoQueue does: the nonce, the contents, the tag."""
    nonce = os.urandom(12)
    return nonce + AESGCM(bytes.fromhex(key)).encrypt(nonce, value, None)


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "orders"
    records = [record(n, sealed(f"secret {n}".encode()), key=b"k") for n in range(8)]
    write_segment(path, 0, records)
    return path


def test_with_its_key_values_come_in_the_clear(source: Path, tmp_path: Path) -> None:
    (keyfile := source.parent / "key").write_text(f"{KEY}\n")
    for told in (KEY, KEY.upper(), f"@{keyfile}"):
        source_opened = open_encrypted(source, DISK, told)
        [topic] = source_opened.topics
        assert [item.value for item in topic.items()] == [f"secret {n}".encode() for n in range(8)]
        assert source_opened.findings.count == 0
    ran = quiver("import", "--from", "goqueue", source, "--topic", "t", "--key", KEY, "--data", tmp_path)
    assert ran.code == 0, ran.err
    read = quiver("read", "t", "--data", tmp_path, "--json")
    assert json.loads(read.text.splitlines()[0])["value"] == "secret 0"


def test_without_a_key_it_is_said_what_they_look_like(source: Path) -> None:
    opened = open_source(source, DISK)
    assert len(list(opened.topics[0].items())) == 8
    assert problems(opened.findings, is_damage=False) == [
        "its values look encrypted: if they are, import with the key they were encrypted with"
    ]


def test_plain_values_do_not_look_encrypted(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plain") / "orders"
    write_segment(
        path, 0, [record(n, f'{{"order": {n}, "customer": "somebody"}}'.encode()) for n in range(40)]
    )
    opened = open_source(path, DISK)
    list(opened.topics[0].items())
    assert opened.findings.count == 0


def test_what_the_key_does_not_open_is_told_and_costs_no_other(source: Path) -> None:
    other = "ff" * 32
    write_segment(
        source, 8, [record(8, sealed(b"x", other)), record(9, b"plain"), record(10, sealed(b"last"))]
    )
    opened = open_encrypted(source, DISK, KEY)
    assert [item.identity for item in opened.topics[0].items()] == [*range(8), 10]
    assert problems(opened.findings) == [
        "offset 8 cannot be decrypted: the key does not open its value",
        "offset 9 cannot be decrypted: its value is too short to be encrypted",
    ]


def test_compressed_and_control_records_are_what_they_are_in_the_clear(source: Path) -> None:
    import gzip

    end = control(9, "tx", is_commit=True)
    value_at = 34 + 2
    plain_control = end[value_at:]
    write_segment(
        source,
        8,
        [
            record(8, sealed(gzip.compress(b"text" * 50)), flags=COMPRESSED),
            record(9, sealed(plain_control), b"tx", flags=8 | 16, priority=0),
        ],
    )
    items = list(open_encrypted(source, DISK, KEY).topics[0].items())
    assert [item.identity for item in items] == list(range(9))
    assert items[-1].value == b"text" * 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--key", "ff" * 32], "the key opens none of the first values"),
        (["--key", "abc"], "64 hex digits, or @FILE"),
        (["--key", "@/nowhere"], "there is no file /nowhere with a key"),
    ],
)
def test_a_wrong_key_is_refused_and_leaves_nothing(
    source: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    data = tmp_path / "data"
    ran = quiver("import", "--from", "goqueue", source, "--topic", "t", *arguments, "--data", data)
    assert (ran.code, ran.text, words in ran.err) == (2, "", True), ran.err
    assert not data.exists()
    assert arguments[1] not in ran.err or arguments[1].startswith("@")


def test_others_have_no_key(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "tinymq" / "plain"
    ran = quiver("import", "--from", "tinymq", fixture, "--key", KEY, "--data", tmp_path / "data")
    assert (ran.code, "only a GoQueue may be encrypted" in ran.err) == (2, True)


def test_without_what_decrypts_it_is_said_what_to_install(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidRequest, match=r"quivermq\[encryption\]"):
        open_encrypted(source, DISK, KEY)
