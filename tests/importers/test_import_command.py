"""`quiver import`, with what it prints and how it ends."""

import json
import shutil
from pathlib import Path

import pytest
from support.broker import serving
from support.command import run_at_terminal, table_rows
from support.command_inside import quiver
from support.tinymq_files import ack, put, write_log

import quivermq
from quivermq.errors import InvalidRequest
from quivermq.importers import KINDS, import_queue

FIXTURES = Path(__file__).parents[1] / "fixtures"
TINY, LEDGER = FIXTURES / "tinymq", FIXTURES / "ledgerq"


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source")
    write_log(
        path / "orders.log", put(1, b"a"), put(2, b"b", retry_count=1), ack(1), put(3, b"c"), b"broken"
    )
    return path


def test_a_directory_becomes_a_topic(source: Path, tmp_path: Path) -> None:
    ran = quiver("import", "--from", "tinymq", source, "--topic", "jobs", "--data", tmp_path / "data")
    assert ran.code == 0, ran.err
    topics, findings = ran.text.split("finding\n" if "finding\n" in ran.text else "finding ", 1)
    assert table_rows(topics) == [["orders", "jobs", "2", "0", "0", "1 consumed", "1 tried before"]]
    [[path, position, _]] = table_rows(ran.text)
    assert (path, position) == (str(source / "orders.log"), str((source / "orders.log").stat().st_size - 7))
    assert "broken" not in findings
    assert ran.err == "1 finding about what could not be imported\n"
    read = quiver("read", "jobs", "--data", tmp_path / "data", "--json")
    assert [json.loads(line)["value"] for line in read.text.splitlines()] == ["b", "c"]


def test_programs_get_json(source: Path, tmp_path: Path) -> None:
    arguments = ("import", "--from", "tinymq", source, "--data", tmp_path / "data", "--json")
    first, second = (json.loads(quiver(*arguments).text) for _ in range(2))
    assert (first["kind"], first["dry_run"], first["damages"]) == ("tinymq", False, 1)
    [topic] = first["topics"]
    assert (topic["source_topic"], topic["topic"], topic["imported"], topic["consumed"]) == (
        "orders",
        "orders",
        2,
        1,
    )
    assert first["findings"][0]["path"] == str(source / "orders.log")
    assert (second["topics"][0]["imported"], second["topics"][0]["already_there"]) == (0, 2)


def test_a_broker_takes_it_too(source: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as broker:
        ran = quiver("import", "--from", "tinymq", source, "--server", broker.url)
        assert ran.code == 0, ran.err
        assert [m.attempt for m in broker.engine.queue("orders").get_many(5)] == [2, 1]


def test_a_dry_run_makes_no_directory(source: Path, tmp_path: Path) -> None:
    ran = quiver("import", "--from", "tinymq", source, "--data", tmp_path / "data", "--dry-run")
    assert (ran.code, (tmp_path / "data").exists()) == (0, False)
    assert "nothing was written: this was a dry run" in ran.err
    assert "2" in ran.text


def test_strict_stops_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    ran = quiver("import", "--from", "tinymq", source, "--data", tmp_path / "data", "--strict")
    assert ran.code == 6
    assert "orders.log at byte" in ran.err
    assert "nothing was imported" in ran.err
    assert not (tmp_path / "data").exists()


def test_all_brings_what_was_consumed(source: Path, tmp_path: Path) -> None:
    ran = quiver("import", "--from", "tinymq", source, "--data", tmp_path / "data", "--all", "--json")
    assert json.loads(ran.text)["topics"][0]["imported"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--from", "rabbitmq", TINY / "plain"], 2, "choose one of ledgerq, tinymq, fluxmq, goqueue"),
        (["--from", "tinymq", "/nowhere"], 3, "there is no directory /nowhere"),
        (["--from", "tinymq", TINY / "plain" / "orders.log"], 2, "is a file: give the directory"),
        (["--from", "goqueue", FIXTURES / "goqueue", "--topic", "x"], 2, "is no directory of GoQueue"),
        (
            ["--from", "goqueue", FIXTURES / "goqueue/broker_data_dir/logs"],
            2,
            "give the directory above it",
        ),
        (["--from", "fluxmq", FIXTURES / "fluxmq/none/queues"], 2, "give the directory above it"),
        (["--from", "tinymq", LEDGER / "plain" / "queue"], 2, "This looks like a ledgerq directory"),
        (["--from", "ledgerq", TINY / "plain", "--topic", "x"], 2, "This looks like a tinymq directory"),
        (["--from", "ledgerq", FIXTURES / "goqueue" / "broker_data_dir"], 2, "This looks like a goqueue"),
        (["--from", "goqueue", FIXTURES / "fluxmq" / "adapter"], 2, "This looks like a fluxmq directory"),
        (
            ["--from", "goqueue", FIXTURES / "goqueue" / "corrupt"],
            2,
            "What is in crc_flip_mid/ looks like one",
        ),
        (["--from", "fluxmq", FIXTURES / "fluxmq" / "corrupt"], 2, "What is in crc_flip/ looks like one"),
        (["--from", "ledgerq", LEDGER / "plain" / "queue"], 2, "say --topic NAME"),
        (["--from", "tinymq", TINY / "plain", "--name", "orders"], 2, "--name is THERE=HERE, not 'orders'"),
        (["--from", "tinymq", TINY / "plain", "--source-topic", "x"], 2, "has no topic 'x'"),
    ],
)
def test_a_mistake_is_told_in_words(
    arguments: list[str | Path], code: int, words: str, tmp_path: Path
) -> None:
    ran = quiver("import", *arguments, "--data", tmp_path / "data")
    assert (ran.code, ran.text) == (code, "")
    assert words in ran.err
    # Neither a directory, nor in one that is there a lock.
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    assert quiver("import", *arguments, "--data", tmp_path / "data").code == code
    assert list((tmp_path / "data").iterdir()) == []


def test_an_empty_directory_is_told(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    for kind in KINDS:
        ran = quiver("import", "--from", kind, empty, "--topic", "t", "--data", tmp_path / "data")
        assert (ran.code, f"{empty} is empty" in ran.err) == (2, True), kind


def test_names_and_topics_are_chosen(tmp_path: Path) -> None:
    chosen = ["--source-topic", "a/b", "--source-topic", "x_b_y", "--name", "a/b=first", "--topic", "new"]
    ran = quiver("import", "--from", "tinymq", TINY / "slash_topic", *chosen, "--data", tmp_path, "--json")
    assert [topic["topic"] for topic in json.loads(ran.text)["topics"]] == ["first", "new.x_b_y"]


def test_attempts_count_on_for_the_named_groups(source: Path, tmp_path: Path) -> None:
    groups = ["--group", "billing"]
    assert quiver("import", "--from", "tinymq", source, *groups, "--data", tmp_path, "--json").code == 0
    got = quiver("get", "orders", "--group", "billing", "--data", tmp_path, "--json")
    assert json.loads(got.text.splitlines()[0])["attempt"] == 2


def test_a_bar_is_shown_at_a_terminal(source: Path, tmp_path: Path) -> None:
    session = run_at_terminal("import", "--from", "tinymq", source, "--data", tmp_path / "data")
    assert session.returncode == 0
    assert "importing" in session.terminal


@pytest.mark.parametrize("target", [".", "data", "..", "link", "orders.d/deep"])
def test_the_target_is_never_the_source_nor_in_it_nor_around_it(
    source: Path, target: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(source)
    data = link if target == "link" else source / target
    before = sorted(source.rglob("*"))
    for dry in ([], ["--dry-run"]):
        ran = quiver("import", "--from", "tinymq", source, "--data", data, *dry)
        assert (ran.code, ran.text) == (2, ""), ran.err
        assert "would be imported to: choose a data directory elsewhere" in ran.err
    assert sorted(source.rglob("*")) == before


def test_a_link_inside_of_the_source_does_not_lead_to_the_target(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parent = tmp_path_factory.mktemp("source")
    moved = tmp_path_factory.mktemp("elsewhere") / "moved"
    shutil.copytree(LEDGER / "plain" / "queue", moved)
    (parent / "jobs").symlink_to(moved)
    ran = quiver("import", "--from", "ledgerq", parent, "--data", moved.parent)
    assert (ran.code, "lies inside of" in ran.err) == (2, True)
    with quivermq.open(tmp_path / "data") as mq, pytest.raises(InvalidRequest, match="lies inside of"):
        import_queue("ledgerq", tmp_path / "data" / "topics", mq)
    assert [path.name for path in moved.parent.iterdir()] == ["moved"]
