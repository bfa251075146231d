"""Each kind refuses the directories of every other by name, and leaves nothing behind when it does."""

import shutil
from pathlib import Path

import pytest
from support.go_files import values, write_segment
from support.ledgerq_files import Queue, segment_header
from support.sources import DISK, flip

import quivermq
from quivermq.errors import InvalidRequest
from quivermq.importers.kinds import KINDS, open_source

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLACES = [
    *(("ledgerq", path) for path in sorted((FIXTURES / "ledgerq").glob("*/queue"))),
    ("ledgerq", FIXTURES / "ledgerq" / "dlq"),
    ("ledgerq", FIXTURES / "ledgerq" / "dlq" / "deadletter"),
    *(("tinymq", path) for path in sorted((FIXTURES / "tinymq").iterdir()) if path.is_dir()),
    *(("fluxmq", FIXTURES / "fluxmq" / name) for name in ("adapter", "none", "zstd", "corrupt/crc_flip")),
    ("fluxmq", FIXTURES / "fluxmq/none/queues/orders"),
    ("fluxmq", FIXTURES / "fluxmq/none/queues/orders/segments"),
    *(("goqueue", FIXTURES / "goqueue" / name) for name in ("broker_data_dir", "partition_multi")),
    ("goqueue", FIXTURES / "goqueue/broker_data_dir/logs/demo-orders"),
    ("goqueue", FIXTURES / "goqueue/broker_data_dir/logs/demo-orders/0"),
]


@pytest.mark.parametrize("wrong", KINDS)
@pytest.mark.parametrize(
    ("kind", "path"), PLACES, ids=[f"{k}-{p.relative_to(FIXTURES)}" for k, p in PLACES]
)
def test_a_directory_of_another_kind_is_refused_by_name(kind: str, path: Path, wrong: str) -> None:
    if wrong == kind:
        assert open_source(kind, path, DISK).topics
        return
    with pytest.raises(InvalidRequest, match=f"looks like a {kind} directory"):
        open_source(wrong, path, DISK)


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source") / "queue"


def test_a_queue_that_is_empty_after_a_crash_is_of_no_other_kind(source: Path) -> None:
    queue = Queue(source)
    queue.metadata(next_id=16)
    (source / f"{1:020}.log").touch()
    for wrong in ("tinymq", "fluxmq", "goqueue"):
        with pytest.raises(InvalidRequest, match="looks like a ledgerq directory"):
            open_source(wrong, source, DISK)


def test_a_partition_without_a_message_is_of_no_other_kind(source: Path) -> None:
    write_segment(source, 0, [])
    (source / f"{0:020}.index").touch()
    assert open_source("goqueue", source, DISK).topics
    for wrong in ("tinymq", "fluxmq", "ledgerq"):
        with pytest.raises(InvalidRequest, match="looks like a goqueue directory"):
            open_source(wrong, source, DISK)


def test_a_partition_whose_first_record_is_damaged_is_still_one(source: Path) -> None:
    path = write_segment(source, 0, values(0, 3))
    flip(path, 0)
    [topic] = open_source("goqueue", source, DISK).topics
    assert [item.identity for item in topic.items()] == [1, 2]


@pytest.mark.parametrize(("kind", "inside"), [("goqueue", "logs"), ("fluxmq", "queues")])
def test_queues_of_others_in_a_directory_of_the_right_name_are_no_broker(
    source: Path, kind: str, inside: str
) -> None:
    shutil.copytree(FIXTURES / "ledgerq/plain/queue", source / inside / "orders")
    with pytest.raises(InvalidRequest, match=f"{inside}/"):
        open_source(kind, source, DISK)


def test_a_directory_of_quiver_itself_is_told(tmp_path: Path) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"a")
    for kind in KINDS:
        for path in (tmp_path / "data", tmp_path / "data/topics/orders/p0/normal"):
            with pytest.raises(InvalidRequest, match="is a directory of Quiver itself"):
                open_source(kind, path, DISK)


def test_a_header_alone_is_a_queue(source: Path) -> None:
    source.mkdir()
    (source / f"{1:020}.log").write_bytes(segment_header())
    assert open_source("ledgerq", source, DISK).topics
    with pytest.raises(InvalidRequest, match="looks like a ledgerq"):
        open_source("goqueue", source, DISK)
