"""Queues of LedgerQ beside each other, and which dead letters are whose."""

import gzip
from pathlib import Path

import pytest
from support.ledgerq_files import Entry, Queue, queue_of
from support.sources import DISK, damage, flip, problems

from quivermq.errors import InvalidRequest
from quivermq.importers.ledgerq import looks_like, open_source
from quivermq.importers.model import Death


@pytest.fixture
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source")


def dead(number: int, original: int, payload: bytes = b"poison", **headers: str) -> Entry:
    story = {
        "dlq.original_msg_id": str(original),
        "dlq.retry_count": "3",
        "dlq.failure_reason": "boom",
        "dlq.last_failure": "2026-11-15T19:48:28.544+01:00",
    }
    told = {name.encode(): value.encode() for name, value in {**headers, **story}.items()}
    return Entry(id=number, payload=payload, headers=told)


def letters(path: Path) -> dict[str, list[bytes]]:
    return {t.name: [letter.value for letter in t.dead_letters()] for t in open_source(path, DISK).topics}


def test_the_only_queue_beside_dead_letters_is_theirs(parent: Path) -> None:
    queue_of(parent / "jobs", Entry(id=1), Entry(id=2))
    queue_of(parent / "graveyard", dead(1, 2, trace="t"))
    source = open_source(parent / "jobs", DISK)
    [letter] = source.topics[0].dead_letters()
    assert letter.headers == {"trace": b"t"}
    assert letter.dead == Death(
        original_id="2", offset=2, attempts=3, reason="boom", time_us=1_794_768_508_544_000
    )
    assert (source.has_names, open_source(parent, DISK).has_names) == (False, True)


@pytest.mark.parametrize("name", ["dlq", "jobs-DLQ", "deadletter", "dead_letters"])
def test_a_directory_for_dead_letters_without_any_is_no_queue(parent: Path, name: str) -> None:
    queue_of(parent / "jobs", Entry(id=1))
    queue_of(parent / name)
    assert letters(parent) == {"jobs": []}
    # Nor is one in which nothing is whole.
    path = next(queue_of(parent / name, dead(1, 1)).path.glob("*.log"))
    flip(path, 100)
    source = open_source(parent, DISK)
    assert [topic.name for topic in source.topics] == ["jobs"]
    assert list(source.topics[0].dead_letters()) == []
    assert damage(source.findings) == [(path.name, 64, path.stat().st_size - 64)]
    # One that holds other messages is a queue, whatever it is called.
    queue_of(parent / name, Entry(id=1, payload=b"live"))
    assert sorted(letters(parent)) == sorted(["jobs", name])


def test_names_tell_whose_dead_letters_they_are(parent: Path) -> None:
    for name in ("orders", "orders-eu", "jobs"):
        queue_of(parent / name, Entry(id=1))
    queue_of(parent / "orders-eu-dlq", dead(1, 1, b"eu"))
    queue_of(parent / "dlq-orders", dead(1, 1, b"all"))
    queue_of(parent / "lost", dead(1, 1, b"lost"))
    found = {"jobs": [], "lost": [b"lost"], "orders": [b"all"], "orders-eu": [b"eu"]}
    assert letters(parent) == found
    assert letters(parent / "orders") == {"orders": [b"all"]}
    assert letters(parent / "jobs") == {"jobs": []}


def test_two_directories_of_dead_letters_have_different_identities(parent: Path) -> None:
    queue_of(parent / "jobs", Entry(id=1))
    queue_of(parent / "dlq-a", dead(1, 1))
    queue_of(parent / "dlq-b", dead(1, 1))
    [topic] = open_source(parent, DISK).topics
    identities = [letter.identity for letter in topic.dead_letters()]
    assert len(set(identities)) == 2
    assert max(identities) < 2**128


def test_dead_letters_that_were_consumed_are_marked(parent: Path) -> None:
    queue_of(parent / "jobs", Entry(id=1))
    queue_of(parent / "dlq", dead(1, 1), dead(2, 1), read_id=2)
    [topic] = open_source(parent, DISK).topics
    assert [letter.is_consumed for letter in topic.dead_letters()] == [True, False]


def test_a_dead_letter_that_was_compressed_is_decompressed(parent: Path) -> None:
    packed = gzip.compress(b"text" * 100)
    queue_of(
        parent / "jobs", Entry(id=1, payload=b"text" * 100, compression=1), Entry(id=2, payload=packed)
    )
    queue_of(
        parent / "dlq", dead(1, 1, packed), dead(2, 2, packed), dead(3, 9, packed), dead(4, 1, packed[:-5])
    )
    source = open_source(parent / "jobs", DISK)
    values = [letter.value for letter in source.topics[0].dead_letters()]
    # The second was sent like that by whoever put it; of the third nobody knows; the fourth is damaged.
    assert values == [b"text" * 100, packed, b"text" * 100, packed[:-5]]
    assert ["stays so" in p for p in problems(source.findings)] == [True]
    assert ["it was decompressed" in p for p in problems(source.findings, is_damage=False)] == [True]


def test_a_dead_letter_has_the_time_and_priority_of_the_message_it_was(parent: Path) -> None:
    queue_of(parent / "jobs", Entry(id=1, priority=2, timestamp_ns=5_000_000), Entry(id=2))
    queue_of(parent / "dlq", dead(1, 1), dead(2, 2))
    first, second = open_source(parent / "jobs", DISK).topics[0].dead_letters()
    assert (first.timestamp_us, first.level) == (5_000, "high")
    assert second.level == "low"


@pytest.mark.parametrize("story", [{}, {"dlq.retry_count": "many", "dlq.last_failure": "then"}])
def test_a_story_with_holes_is_told_as_far_as_it_goes(parent: Path, story: dict[str, str]) -> None:
    told = {b"dlq.original_msg_id": b"x"} | {name.encode(): v.encode() for name, v in story.items()}
    queue_of(parent / "dlq", Entry(id=1, headers=told, timestamp_ns=7_000_000))
    [letter] = open_source(parent / "dlq", DISK).topics[0].dead_letters()
    assert letter.dead == Death(time_us=7_000)
    assert letter.headers is None


def test_what_is_not_ledgerq_is_refused_in_words(parent: Path) -> None:
    (parent / "orders.log").write_text("hello")
    (parent / "deep" / "er").mkdir(parents=True)
    with pytest.raises(
        InvalidRequest, match=r"is not a LedgerQ directory: .* segments such as 0{19}1\.log"
    ):
        open_source(parent, DISK)
    assert not looks_like(parent, DISK)


def test_a_queue_without_messages_is_one(parent: Path) -> None:
    queue = queue_of(parent / "jobs")
    (parent / "jobs" / f"{1:020d}.log").unlink()
    assert looks_like(queue.path, DISK)
    [topic] = open_source(queue.path, DISK).topics
    assert (list(topic.items()), list(topic.dead_letters()), topic.witnesses) == ([], [], [])


def test_a_directory_may_be_a_link(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    queue_of(elsewhere, Entry(id=1))
    (parent / "jobs").symlink_to(elsewhere)
    assert [topic.name for topic in open_source(parent, DISK).topics] == ["jobs"]
    assert [item.id for item in open_source(parent / "jobs", DISK).topics[0].items()] == ["1"]


def crashed(path: Path, size: int = 0) -> Path:
    """A queue that has given out ids and dedup ids, and whose only segment never reached the disk."""
    queue = Queue(path)
    queue.metadata(read_id=4, next_id=16)
    queue.dedup({"dedup_id": "ab" * 32, "message_id": 3, "offset": 64, "expires_at": 2**62})
    (path / f"{1:020d}.log").write_bytes(bytes(size))
    return path


@pytest.mark.parametrize("size", [0, 20, 65536])
def test_a_queue_whose_only_segment_is_empty_after_a_crash_is_one(parent: Path, size: int) -> None:
    source = open_source(crashed(parent / "jobs", size), DISK)
    [topic] = source.topics
    assert (list(topic.items()), topic.witnesses) == ([], [])
    assert [each.identity for each in topic.seen_ids] == [3]
    assert "the ids 4 to 15 are not in the log, though given out" in problems(
        source.findings, is_damage=False
    )
    assert source.findings.damages > 0


def test_among_several_queues_none_is_passed_over(parent: Path) -> None:
    queue_of(parent / "orders", Entry(id=1))
    crashed(parent / "jobs")
    broken = queue_of(parent / "mails", *(Entry(id=number) for number in range(1, 16)))
    flip(parent / "mails" / f"{1:020d}.log", 2)
    (parent / "strange").mkdir()
    (parent / "strange" / f"{1:020d}.log").write_bytes(b"something else")
    (parent / "notes").mkdir()
    (parent / "notes" / "today.txt").write_text("hello")
    (parent / "README").write_text("hello")
    source = open_source(parent, DISK)
    found = {topic.name: [item.id for item in topic.items()] for topic in source.topics}
    assert found == {"orders": ["1"], "jobs": [], "mails": [str(number) for number in range(1, 16)]}
    assert ("strange", None, None) in damage(source.findings)
    assert (f"{1:020d}.log", 0, 64) in damage(source.findings)
    told = {each.path.name for each in source.findings.kept if not each.is_damage}
    assert {"notes", "README"} <= told
    assert broken.path.name not in told


def test_a_magic_that_is_damaged_does_not_lose_a_queue_without_metadata(parent: Path) -> None:
    queue = queue_of(parent / "jobs", *(Entry(id=number) for number in range(1, 16)))
    (queue.path / "metadata.dat").unlink()
    for bit in range(8):
        flip(queue.path / f"{1:020d}.log", 0, bit)
        [topic] = open_source(queue.path, DISK).topics
        assert len(list(topic.items())) == 15
        flip(queue.path / f"{1:020d}.log", 0, bit)


def test_a_queue_is_known_again_when_its_header_is_damaged_since(parent: Path) -> None:
    queue = queue_of(parent / "jobs", Entry(id=1), Entry(id=2))
    before = set(open_source(queue.path, DISK).topics[0].witnesses)
    for position in (0, 9, 17, 60):
        flip(queue.path / f"{1:020d}.log", position)
    assert before & set(open_source(queue.path, DISK).topics[0].witnesses)


def test_two_queues_whose_headers_are_gone_are_not_taken_for_one(parent: Path) -> None:
    known = []
    for name in ("a", "b"):
        queue = queue_of(parent / name, Entry(id=1, payload=name.encode()))
        path = queue.path / f"{1:020d}.log"
        path.write_bytes(bytes(64) + path.read_bytes()[64:])
        known.append(set(open_source(queue.path, DISK).topics[0].witnesses))
    assert all(known)
    assert not known[0] & known[1]


def test_what_a_higher_priority_may_have_passed_over_is_counted(parent: Path) -> None:
    priorities = (None, 1, None, 2, None, 1, None, 2)
    entries = [Entry(id=number, priority=told) for number, told in enumerate(priorities, 1)]
    # Before the read position, which the sixth is at: two low and one medium are behind the high fourth;
    # the fifth, low, is behind the sixth.
    queue_of(parent / "jobs", *entries, read_id=7)
    source = open_source(parent / "jobs", DISK)
    [topic] = source.topics
    assert sum(item.is_consumed for item in topic.items()) == 6
    assert topic.passed_over == 4
    told = [each for each in problems(source.findings, is_damage=False) if "never have been" in each]
    assert len(told) == 1
    assert "taken: 4." in told[0]


def test_without_priorities_nothing_is_passed_over(parent: Path) -> None:
    queue_of(parent / "jobs", *(Entry(id=number) for number in range(1, 5)), read_id=4)
    [topic] = open_source(parent / "jobs", DISK).topics
    assert (len(list(topic.items())), topic.passed_over) == (4, 0)
