"""A source is only read: nothing in it changes, and it may be where nobody can write."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import everything

import quivermq
from quivermq.disk import SystemDisk
from quivermq.importers import KINDS, import_queue

FIXTURES = Path(__file__).parents[1] / "fixtures"
SOURCES = [
    *(("ledgerq", path) for path in sorted((FIXTURES / "ledgerq").glob("*/queue"))),
    *(("tinymq", path) for path in sorted((FIXTURES / "tinymq").iterdir()) if path.is_dir()),
    *(("fluxmq", FIXTURES / "fluxmq" / name) for name in ("adapter", "none", "zstd", "corrupt/crc_flip")),
    *(("goqueue", FIXTURES / "goqueue" / name) for name in ("broker_data_dir", "partition_multi")),
]


class ReadingDisk(SystemDisk):
    """Where nothing can be written; it remembers how files were opened."""

    def __init__(self) -> None:
        self.opened: set[str] = set()

    def open(self, path: Path, *, writable: bool = False) -> Any:
        assert not writable, f"{path} was opened for writing"
        self.opened.add(path.name)
        return super().open(path)

    def _refuse(self, *_: object, **__: object) -> Any:
        raise AssertionError("an import changed its source")

    create = make_directory = rename = remove = remove_directory = sync_directory = lock = _refuse


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy that its owner may not change either."""
    _, original = request.param
    whole = tmp_path_factory.mktemp("source") / "all"
    # With what lies beside it: dead letters may.
    shutil.copytree(original.parent if original.name == "queue" else original, whole)
    for path in (whole, *whole.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield whole / "queue" if original.name == "queue" else whole
    for path in (whole, *(path for path in whole.rglob("*") if path.is_dir())):
        path.chmod(0o755)


@pytest.mark.parametrize(
    "copied",
    SOURCES,
    indirect=True,
    ids=[f"{kind}-{path.parent.name}-{path.name}" for kind, path in SOURCES],
)
def test_nothing_of_a_source_changes(copied: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kind, _ = request.node.callspec.params["copied"]
    before, disk = everything(copied.parent), ReadingDisk()
    import_queue(kind, copied, None, topic="t", disk=disk, dry_run=True)
    with quivermq.open(tmp_path / "data") as mq:
        summary = import_queue(kind, copied, mq, topic="t", disk=disk, all=True)
    assert sum(topic.imported + topic.dead_letters for topic in summary.topics) > 0
    assert everything(copied.parent) == before
    assert disk.opened


def test_every_kind_is_tried() -> None:
    assert {kind for kind, _ in SOURCES} == set(KINDS)
    assert all(os.access(path, os.R_OK) for _, path in SOURCES)
