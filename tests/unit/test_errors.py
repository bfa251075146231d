import inspect
import pickle
import re
from pathlib import Path

import pytest
from reference import ROOT, error_classes, errors_page

from quivermq import errors
from quivermq.errors import QuiverError

EXAMPLES: dict[str, QuiverError] = {
    "MessageTooLarge": errors.MessageTooLarge(
        "the message", size_bytes=3, limit_bytes=2, setting="storage.message_bytes_max"
    ),
    "InvalidFrame": errors.InvalidFrame("no magic", position=80),
    "UnsupportedFrame": errors.UnsupportedFrame("version 2", position=0),
    "InvalidSettings": errors.InvalidSettings("storage.codec", "unknown", origin="quiver.toml"),
    "LimitReached": errors.LimitReached("the topic t", setting="engine.topics_max", limit=1),
    "OffsetOutOfRange": errors.OffsetOutOfRange(7, start=8, end=9),
    "LeaseExpired": errors.LeaseExpired(receipts=["t:0:1:7:ab"]),
    "Overloaded": errors.Overloaded("t", setting="backlog_messages_max", limit=1),
    "DirectoryLocked": errors.DirectoryLocked(Path("data"), pid=42),
    "DiskRefused": errors.DiskRefused("it is read-only", path=Path("data/0.log")),
    "DiskFull": errors.DiskFull(Path("data/0.log"), needed_bytes=100),
    "StoreBehind": errors.StoreBehind("64 MiB wait for it", path=Path("data/0.log")),
    "DamagedChunk": errors.DamagedChunk("bad checksum", path=Path("chunk/7")),
    "StorageFailed": errors.StorageFailed("cannot read", path=Path("data/0.log")),
    "Corruption": errors.Corruption(
        "bad checksum", path=Path("data/0.log"), position=80, offsets=(3, None)
    ),
    "FsyncFailed": errors.FsyncFailed("cannot sync", path=Path("data/0.log")),
}


def example_of(error_class: type[QuiverError]) -> QuiverError:
    return EXAMPLES.get(error_class.__name__) or error_class("what happened")


@pytest.mark.parametrize("error_class", error_classes())
def test_an_error_crosses_a_process_pool_whole(error_class: type[QuiverError]) -> None:
    error = example_of(error_class)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_class
    assert str(copy) == str(error) != ""
    assert copy.args == error.args
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_fields_of_an_error_are_attributes(name: str) -> None:
    declared = inspect.signature(type(EXAMPLES[name]).__init__).parameters.values()
    promised = {p.name for p in declared if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert promised
    assert promised <= vars(EXAMPLES[name]).keys()


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"^([ │]*)(?:[├└]── )?([A-Z]\w+)", tree_lines(), flags=re.MULTILINE)
    assert [name for _, name in drawn] == [each.__name__ for each in error_classes()]
    # A level is four characters wide: `├── ` or `│   `.
    assert [depth(line) for line in tree_lines().splitlines()] == [
        each.__mro__.index(Exception) - 1 for each in error_classes()
    ]


def tree_lines() -> str:
    doc = inspect.getdoc(errors) or ""
    lines = doc.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip() == "QuiverError")
    return inspect.cleandoc("\n".join(lines[start : lines.index("", start)]))


def depth(line: str) -> int:
    return len(re.match(r"[ │├└─]*", line)[0]) // 4  # type: ignore[index]


def test_codes_are_unique() -> None:
    codes = [each.code for each in error_classes()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("error_class", error_classes())
def test_an_error_exits_as_its_group_does(error_class: type[QuiverError]) -> None:
    group = error_class
    while group.__base__ not in {QuiverError, Exception}:
        group = group.__base__  # type: ignore[assignment]
    assert error_class.exit_code == group.exit_code
    assert error_class.retryable is issubclass(error_class, errors.Unavailable)


def test_the_page_is_what_make_reference_writes() -> None:
    assert (ROOT / "docs/reference/errors.md").read_text() == errors_page()
