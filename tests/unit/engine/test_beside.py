"""A picture of a queue that somebody else has open: the same figures, and not a byte is changed."""

import hashlib
from pathlib import Path

import pytest

import quivermq
from quivermq.engine.beside import BesideDisk, open_beside


def fingerprint(path: Path) -> dict[str, str]:
    files = (each for each in sorted(path.rglob("*")) if each.is_file())
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def test_it_shows_what_the_one_who_has_it_open_sees(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.create_topic("orders", attempts_max=1, partitions=2)
        orders = mq.queue("orders", "billing")
        orders.put_many([b"%d" % number for number in range(20)])
        orders.put(b"later", delay=3600)
        taken = orders.get_many(6)
        orders.ack(taken[:3])
        orders.nack(taken[3:5])
        orders.release(taken[5:])
        orders.get_many(2)
        before = fingerprint(tmp_path)
        with quivermq.Connection(open_beside(tmp_path)) as picture:
            seen, real = picture.stats(), mq.stats()
            assert seen.topics["orders"].as_dict() == real.topics["orders"].as_dict()
            assert picture.topics() == mq.topics()
            assert [letter.value for letter in picture.queue("orders").dead_letters()] == [
                letter.value for letter in orders.dead_letters()
            ]
            assert [each.value for each in picture.queue("orders").scheduled()] == [b"later"]
            assert picture.queue("orders").read(partition=0) == orders.read(partition=0)
            # Whatever is done with the picture stays there.
            picture.queue("orders").put_many([b"x"] * 5)
            picture.create_topic("more")
            picture.delete_topic("orders")
        assert fingerprint(tmp_path) == before
        assert mq.topics() == sorted({"orders", "orders.dlq"})
        orders.put(b"on")


def test_a_torn_tail_is_left_for_its_owner(tmp_path: Path) -> None:
    with quivermq.open(tmp_path) as mq:
        mq.queue("orders").put_many([b"a", b"b"])
    [log] = (tmp_path / "topics/orders/p0/normal").glob("*.log")
    log.write_bytes(log.read_bytes() + b"QVF1 torn")
    before = fingerprint(tmp_path)
    with quivermq.Connection(open_beside(tmp_path)) as picture:
        assert [message.value for message in picture.queue("orders").read()] == [b"a", b"b"]
    assert fingerprint(tmp_path) == before


def test_a_disk_of_which_only_what_was_written_is_in_memory(tmp_path: Path) -> None:
    there, new = tmp_path / "there", tmp_path / "deep" / "new"
    there.write_bytes(b"0123456789")
    disk = BesideDisk()
    file = disk.open(there, writable=True)
    file.append([b"ab", b"cd"])
    assert (file.size(), file.read(8, 4), bytes(file.map(12))) == (14, b"89ab", b"0123456789ab")
    file.truncate(12)
    file.truncate(4)
    file.append([b"!"])
    assert (file.read(0, 100), bytes(file.map(3))) == (b"0123!", b"012")
    file.close()
    disk.make_directory(new.parent)
    disk.create(new).append([b"x"])
    disk.rename(there, tmp_path / "moved")
    assert (disk.names(tmp_path), disk.names(new.parent)) == (["deep", "moved"], ["new"])
    assert (disk.exists(there), disk.is_directory(new.parent), disk.exists(new)) == (False, True, True)
    assert disk.open(tmp_path / "moved").read(0, 9) == b"0123!"
    disk.remove(new)
    disk.remove_directory(new.parent)
    with pytest.raises(FileNotFoundError):
        disk.open(there)
    assert disk.names(tmp_path) == ["moved"]
    assert there.read_bytes() == b"0123456789"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
