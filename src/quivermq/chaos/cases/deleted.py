"""Files are gone that only say again what others say: indexes, what was seen before, the lock."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from quivermq.chaos.broker import broker
from quivermq.chaos.cases.damage import Store
from quivermq.chaos.expectation import expect
from quivermq.chaos.facts import compare
from quivermq.chaos.faulty_disk import FaultyDisk
from quivermq.chaos.memory import DATA
from quivermq.chaos.publisher import Publisher
from quivermq.chaos.trial import Trial
from quivermq.disk import remove_tree
from quivermq.engine import open_engine
from quivermq.errors import DirectoryLocked
from quivermq.log import verify

_TOPIC = "orders"


def engine(trial: Trial) -> None:
    """One index at a time, all of them, what was seen before, the lock: everything is known as before."""
    store = Store(trial.seed)
    indexes = [path for path in store.disk.files() if path.suffix == ".idx"]
    for path in indexes:
        _check(trial, store, str(path), partial(_remove_all, [path]))
    _check(trial, store, "every index", partial(_remove_all, indexes))
    for seen in {path.parent for path in store.disk.files() if path.parent.name == "seen"}:
        _check(trial, store, str(seen), partial(_remove_tree, seen))
    _check(trial, store, "the lock", partial(_remove_all, [DATA / "LOCK"]))


def _check(trial: Trial, store: Store, what: str, take: Callable[[FaultyDisk], None]) -> None:
    disk = store.disk.after_kill()
    take(disk)
    for _ in range(2):
        with store.opened(disk) as opened:
            lost = compare(store.before, store.facts(opened, disk), f"without {what}")
        expect(not lost, f"without {what}, this is lost: {lost}")
    # Closed in good order, every index is there again, but for those of segments that nobody looked at.
    expect(verify(DATA, disk=disk).is_sound, f"without {what}, something is damaged")
    trial.tried += 1


def _remove_all(paths: list[Path], disk: FaultyDisk) -> None:
    for path in paths:
        disk.remove(path)


def _remove_tree(path: Path, disk: FaultyDisk) -> None:
    remove_tree(disk, path)


def over_http(trial: Trial) -> None:
    """A broker whose indexes and lock are taken away while it runs, and while it does not."""
    publisher = Publisher(_TOPIC)
    with (
        trial.nursery() as lives,
        broker(lives, trial.data, storage__segment_messages=5, storage__index_interval_bytes=64) as process,
    ):
        for cycle in range(trial.cycles):
            for _ in range(12):
                expect(publisher.publish(process.caller()).is_done, "a publish failed")
            if cycle % 2:
                process.kill()
            else:
                process.stop()
            _take_indexes(trial.data)
            (trial.data / "LOCK").unlink()
            process.start()
            publisher.check(process.caller())
            _take_indexes(trial.data)
            (trial.data / "LOCK").unlink()
            publisher.check(process.caller())
            _check_refused(trial.data)
            expect(publisher.publish(process.caller()).is_done, "a publish failed")
            trial.tried += 2


def _take_indexes(path: Path) -> None:
    for index in path.rglob("*.idx"):
        index.unlink()


def _check_refused(path: Path) -> None:
    """Without the file that says so, the directory is still the broker's."""
    try:
        open_engine(path).close()
    except DirectoryLocked:
        return
    expect(False, "two processes write to one directory, because the lock file was gone")
