"""Files of a queue are damaged under a real broker, are deleted, or are wanted by two processes at once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from quivermq.chaos import Violation, expect
from quivermq.chaos.cases.damage import SampleQueue
from quivermq.chaos.cases.facts import compare
from quivermq.chaos.cases.simulated_disk import DATA
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.http_clients import HttpClient, Publisher
from quivermq.chaos.processes import BrokerProcess, ProcessPool, broker, process_pool
from quivermq.chaos.trial import Trial
from quivermq.disk import remove_tree
from quivermq.errors import DirectoryLocked
from quivermq.log import repair, verify
from quivermq.opening import open_directory
from quivermq.server.keys import create_key

_MESSAGES = 10
_DAMAGED = 4
_ORDERS, _OTHER, _GROUP = "orders", "other", "billing"


def damage_broker(trial: Trial) -> None:
    """Every kind of file, one after the other, each in a directory of its own."""
    for number, (name, damage, check) in enumerate(_KINDS * trial.cycles):
        path = trial.directory / f"data{number}"
        with trial.broker(path) as process:
            _prepare(process.client())
            process.stop()
            damage(path)
            try:
                process.start()
                check(process.client())
                _check_other(process.client())
                process.stop()
                _check_repaired(path, name)
                process.start()
                _check_after_repair(process.client(), name)
            except Violation as error:
                raise Violation(f"{name}: {error}") from error
            trial.tried += 1


def damaged_keys(trial: Trial) -> None:
    """A broker whose keys cannot be read does not serve: it could not tell who may do what."""
    create_key(trial.data, "read", ["orders"])
    _flip_value(trial.data / "keys.json", b"orders")
    with trial.process_pool() as pool:
        try:
            with broker(pool, trial.data):
                raise Violation("it serves with keys that were changed")
        except Violation as error:
            expect("keys.json cannot be understood" in str(error), f"it does not say why: {error}")
            pool.wait(256)
    trial.tried += 1


def _prepare(client: HttpClient) -> None:
    for topic in (_ORDERS, _OTHER):
        client.call("POST", "/v1/topics", {"name": topic, "partitions": 1, "attempts_max": 5})
        for number in range(_MESSAGES):
            expect(client.publish(topic, f"message {number}").is_done, "a publish failed")
        client.publish(topic, "later", delay_ms=3_600_000)
        messages = client.receive(topic, _GROUP, 3, lease_ms=3_600_000)
        client.settle("ack", topic, _GROUP, [message["receipt"] for message in messages[:2]])


def _flip_message(path: Path) -> None:
    _flip_value(_log(path / "topics" / _ORDERS / "p0" / "normal"), b"message %d" % _DAMAGED)


def _flip_journal(path: Path) -> None:
    _flip_middle(_log(path / "groups" / _GROUP / _ORDERS / "p0"))


def _flip_delayed(path: Path) -> None:
    buckets = [each for each in (path / "topics" / _ORDERS / "delayed").iterdir() if each.name != "journal"]
    _flip_value(_log(buckets[0]), b"later")


def _flip_settings(path: Path) -> None:
    _flip_value(path / "topics" / _ORDERS / "topic.json", b'"attempts_max": 5')


def _log(directory: Path) -> Path:
    return max(each for each in directory.glob("*.log") if each.stat().st_size)


def _flip_value(path: Path, value: bytes) -> None:
    """Flip the lowest bit of the last byte of some text: a digit stays a digit."""
    _flip(path, path.read_bytes().index(value) + len(value) - 1)


def _flip_middle(path: Path) -> None:
    _flip(path, path.stat().st_size // 2)


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _check_message(client: HttpClient) -> None:
    """What lies before the damage is read; the damage itself is an error that names its offsets."""
    values = client.values(_ORDERS, limit=_DAMAGED)
    expect(values == [f"message {number}" for number in range(_DAMAGED)], f"before the damage: {values}")
    answer = client.read(_ORDERS, offset=_DAMAGED)
    expect(answer.code == "corruption", f"the damage is not reported: {answer}")
    offsets = answer.document["error"]["offsets"]
    expect(offsets == [_DAMAGED, _DAMAGED + 1], f"the damage is said to be at {offsets}")
    expect(_problems(client), "the broker says that all is well")


def _check_journal(client: HttpClient) -> None:
    answer = client.call("POST", f"/v1/topics/{_ORDERS}/groups/{_GROUP}/receive", {"max": 1})
    expect(answer.code == "corruption", f"the damage is not reported: {answer}")
    expect(len(client.values(_ORDERS)) == _MESSAGES, "the messages themselves cannot be read")
    expect(client.receive(_ORDERS, "another"), "another group is not served")
    expect(_problems(client), "the broker says that all is well")


def _check_delayed(client: HttpClient) -> None:
    answer = client.call("GET", f"/v1/topics/{_ORDERS}/scheduled")
    expect(answer.code == "corruption", f"the damage is not reported: {answer}")
    expect(len(client.values(_ORDERS)) == _MESSAGES, "the messages in the lanes cannot be read")
    expect(len(client.receive(_ORDERS, _GROUP, 100)) == _MESSAGES - 3, "they are not delivered")


def _check_settings(client: HttpClient) -> None:
    answer = client.publish(_ORDERS, "x")
    expect(answer.code == "storage_failed", f"settings that were changed are obeyed: {answer}")
    expect("checksum" in answer.document["error"]["message"], f"it does not say why: {answer}")
    expect(_problems(client), "the broker says that all is well")


def _problems(client: HttpClient) -> list[object]:
    found: list[object] = client.call("GET", "/v1/stats").document["problems"]
    return found


def _check_other(client: HttpClient) -> None:
    """Another topic goes on as if nothing had happened."""
    expect(client.values(_OTHER)[:_MESSAGES] == [f"message {n}" for n in range(_MESSAGES)], "not served")
    expect(client.publish(_OTHER, "more").is_done, "another topic takes nothing")
    expect(len(client.receive(_OTHER, _GROUP, 100)) == _MESSAGES - 2, "another topic delivers nothing")


def _check_repaired(path: Path, name: str) -> None:
    """As `quiver repair` does; a file of settings is for people to mend, who take its checksum out."""
    if name == "settings":
        file = path / "topics" / _ORDERS / "topic.json"
        _flip_value(file, b'"attempts_max": 4')
        return
    expect(repair(path).mended, "a repair found nothing to mend")
    expect(verify(path).is_sound, "a repair left damage")


def _check_after_repair(client: HttpClient, name: str) -> None:
    """Only the damaged range is lost."""
    lost = [_DAMAGED] if name == "message" else []
    wanted = [f"message {number}" for number in range(_MESSAGES) if number not in lost]
    expect(client.values(_ORDERS)[: len(wanted)] == wanted, f"after a repair: {client.values(_ORDERS)}")
    expect(client.publish(_ORDERS, "more").is_done, "after a repair nothing is taken")
    expect(client.receive(_ORDERS, _GROUP, 1), "after a repair nothing is delivered")
    expect(not _problems(client), f"after a repair there are problems: {_problems(client)}")


_KINDS: list[tuple[str, Callable[[Path], None], Callable[[HttpClient], None]]] = [
    ("message", _flip_message, _check_message),
    ("delivery journal", _flip_journal, _check_journal),
    ("delayed message", _flip_delayed, _check_delayed),
    ("settings", _flip_settings, _check_settings),
]


def delete_engine(trial: Trial) -> None:
    """One index at a time, all of them, what was seen before, the lock: everything is known as before."""
    sample = SampleQueue(trial.seed)
    indexes = [path for path in sample.disk.files() if path.suffix == ".idx"]
    for path in indexes:
        _check_without(trial, sample, str(path), partial(_remove_all, [path]))
    _check_without(trial, sample, "every index", partial(_remove_all, indexes))
    for seen in {path.parent for path in sample.disk.files() if path.parent.name == "seen"}:
        _check_without(trial, sample, str(seen), partial(remove_tree, path=seen))
    _check_without(trial, sample, "the lock", partial(_remove_all, [DATA / "LOCK"]))


def _check_without(
    trial: Trial, sample: SampleQueue, what: str, take: Callable[[FaultyDisk], None]
) -> None:
    disk = sample.disk.after_kill()
    take(disk)
    for _ in range(2):
        with sample.opened(disk) as opened:
            lost = compare(sample.before, sample.facts(opened, disk), f"without {what}")
        expect(not lost, f"without {what}, this is lost: {lost}")
    # Closed in good order, every index is there again, but for those of segments that nobody looked at.
    expect(verify(DATA, disk=disk).is_sound, f"without {what}, something is damaged")
    trial.tried += 1


def _remove_all(paths: list[Path], disk: FaultyDisk) -> None:
    for path in paths:
        disk.remove(path)


def delete_broker(trial: Trial) -> None:
    """A broker whose indexes and lock are taken away while it runs, and while it does not."""
    publisher = Publisher(_ORDERS)
    with trial.broker(storage__segment_messages=5, storage__index_interval_bytes=64) as process:
        for cycle in range(trial.cycles):
            for _ in range(12):
                expect(publisher.publish(process.client()).is_done, "a publish failed")
            if cycle % 2:
                process.kill()
            else:
                process.stop()
            _delete_files(trial.data)
            process.start()
            publisher.check(process.client())
            _delete_files(trial.data)
            publisher.check(process.client())
            _check_refused(trial)
            expect(publisher.publish(process.client()).is_done, "a publish failed")
            trial.tried += 2


def _delete_files(path: Path) -> None:
    for index in path.rglob("*.idx"):
        index.unlink()
    (path / "LOCK").unlink()


def lock_engine(trial: Trial) -> None:
    """A process that has the directory open is named to whoever comes second; dead, it keeps nobody out."""
    with trial.process_pool() as pool:
        for number in range(trial.cycles):
            pid = pool.start(kind="worker", path=str(trial.data), settings={}, run={"number": number})
            # Its first step: the directory is open.
            pool.read()
            _check_refused(trial, pid)
            pool.kill()
            open_directory(trial.data).close()
            trial.tried += 1


def lock_broker(trial: Trial) -> None:
    """A second broker says who the first one is, and ends; when that is dead, it serves."""
    with process_pool() as others, trial.broker() as process:
        for cycle in range(trial.cycles):
            expect(process.client().publish("t", f"{cycle}").is_done, "a publish failed")
            _check_refused(trial, process.pid)
            _check_second(others, trial, process.pid)
            process.kill()
            with broker(others, trial.data) as second:
                found = second.client().values("t")
                expect(found == [str(n) for n in range(cycle + 1)], "messages are lost")
                second.stop()
            process.start()
            trial.tried += 1


def _check_refused(trial: Trial, pid: int | None = None) -> None:
    """The directory belongs to another process, which is named unless the lock file is gone."""
    try:
        open_directory(trial.data).close()
    except DirectoryLocked as error:
        if pid is not None:
            expect(error.pid == pid, f"the holder is {pid}, and {error.pid} was named")
            expect(str(pid) in str(error), f"the holder is not named: {error}")
    else:
        raise Violation("two processes have one directory open")


def _check_second(others: ProcessPool, trial: Trial, pid: int) -> None:
    second = BrokerProcess(others, trial.data)
    try:
        second.start()
    except Violation as error:
        # What the second broker said on its way out.
        expect(f"in use by process {pid}" in str(error), f"it did not say who has the directory: {error}")
        others.read()
    else:
        raise Violation("two brokers serve one directory")
