"""A queue in a bucket: who owns it, where its files are, and what is left when it is closed."""

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from support.threads import wait_until

import quivermq
from quivermq.disk import SystemDisk
from quivermq.engine import engine_of, is_queue, open_at
from quivermq.engine.bucket import BucketEngine
from quivermq.errors import (
    Closing,
    DirectoryLocked,
    DiskFull,
    InvalidRequest,
    InvalidSettings,
    NotFound,
    NotOwner,
    StoreNotFound,
    StoreUnreachable,
)
from quivermq.settings import BucketSettings
from quivermq.shared import SharedLimits
from quivermq.shared.beside import store_limits
from quivermq.shared.bucket import BucketStore


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def values(mq: quivermq.Connection) -> list[bytes]:
    return [message.value for message in mq.queue("orders").read()]


def test_a_queue_goes_from_machine_to_machine(url: str, tmp_path: Path) -> None:
    with quivermq.open(url, cache=tmp_path / "one") as mq:
        orders = mq.queue("orders")
        orders.put_many([b"tea", b"milk"])
        orders.pop()
    with quivermq.open(url + "/", cache=tmp_path / "two") as mq:
        assert values(mq) == [b"tea", b"milk"]
        delivery = mq.queue("orders").get()
        assert delivery is not None
        assert delivery.value == b"milk"


def test_it_is_called_by_its_url(url: str, tmp_path: Path) -> None:
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        assert repr(mq) == f"<Connection {url}>"
        assert repr(mq.backend) == f"<Engine {url}, 0 topics>"


def test_the_newcomer_owns_it(url: str, tmp_path: Path) -> None:
    first = quivermq.open(url, cache=tmp_path / "one")
    first.queue("orders").put(b"tea")
    engine = first.backend
    assert isinstance(engine, BucketEngine)
    with quivermq.open(url, cache=tmp_path / "two") as second:
        assert engine.lost is None
        with pytest.raises(NotOwner, match="another process has taken over"):
            first.queue("orders").put(b"late")
        assert isinstance(engine.lost, NotOwner)
        with pytest.raises(NotOwner):
            first.create_topic("more")
        # Nothing to say: what could be committed is.
        first.close()
        assert values(second) == [b"tea"]
    with pytest.raises(Closing):
        first.topics()
    # Its cache is free.
    quivermq.open(url, cache=tmp_path / "one").close()


def test_an_idle_owner_notices_as_well(url: str, tmp_path: Path) -> None:
    settings = {"bucket": {"owner_check_ms": 5}}
    with quivermq.open(url, settings, cache=tmp_path / "one") as first:
        first.queue("orders").put(b"tea")
        first_engine = engine_of(first)
        with quivermq.open(url, settings, cache=tmp_path / "two") as second:
            wait_until(lambda: first_engine.lost is not None)
            with pytest.raises(NotOwner):
                first.queue("orders").get()
            # Nor does it take its own chunks for those of others.
            for number in range(20):
                second.queue("orders").put(b"%d" % number)
            assert engine_of(second).lost is None


def test_an_idle_owner_bears_a_store_that_is_silent(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(*_: object) -> bytes:
        asked.append(True)
        raise StoreUnreachable("it is gone")

    with quivermq.open(url, {"bucket": {"owner_check_ms": 5}}, cache=tmp_path / "cache") as mq:
        with monkeypatch.context() as patch:
            patch.setattr(BucketStore, "get", fail)
            wait_until(lambda: len(asked) > 2)
        mq.queue("orders").put(b"tea")
        assert values(mq) == [b"tea"]


def test_closing_commits_what_was_not_waited_for(url: str, tmp_path: Path) -> None:
    settings = {"storage": {"durability": "buffered"}}
    with quivermq.open(url, settings, cache=tmp_path / "one") as mq:
        mq.queue("orders").put_many([b"%d" % number for number in range(100)])
    with quivermq.open(url, cache=tmp_path / "two") as mq:
        assert len(values(mq)) == 100


# Caches.


def test_a_cache_is_of_one_queue_at_a_time(url: str, tmp_path: Path) -> None:
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        other = (tmp_path / "other").as_uri()
        with pytest.raises(DirectoryLocked, match=str(tmp_path / "cache")) as raised:
            quivermq.open(other, cache=tmp_path / "cache")
        assert raised.value.pid == os.getpid()
        # Nobody has been asked for anything.
        assert not is_queue(other, BucketSettings())
        mq.queue("orders").put(b"tea")


def test_who_finds_the_cache_in_use_is_told_where_it_is_served(url: str, tmp_path: Path) -> None:
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        engine_of(mq).announce("http://127.0.0.1:7070")
        with pytest.raises(DirectoryLocked) as raised:
            quivermq.open(url, cache=tmp_path / "cache")
    assert raised.value.url == "http://127.0.0.1:7070"


def test_by_default_it_is_in_the_cache_of_the_user(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with quivermq.open(url) as mq:
        mq.queue("orders").put(b"tea")
        with pytest.raises(DirectoryLocked):
            quivermq.open(url)
    (cache,) = (tmp_path / "cache/quiver").iterdir()
    for path in [cache, *cache.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    # Another queue has another.
    quivermq.open((tmp_path / "other").as_uri()).close()
    quivermq.open(url, {"bucket": {"endpoint": "http://127.0.0.1:1"}}).close()
    assert len(list((tmp_path / "cache/quiver").iterdir())) == 3


def test_without_xdg_it_is_below_the_home_directory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    quivermq.open(url).close()
    assert len(list((tmp_path / ".cache/quiver").iterdir())) == 1


def test_the_cache_may_be_a_setting(url: str, tmp_path: Path) -> None:
    settings = {"bucket": {"cache": str(tmp_path / "cache")}}
    quivermq.open(url, settings).close()
    assert (tmp_path / "cache/data").is_dir()
    quivermq.open(url, settings, cache=tmp_path / "other").close()
    assert (tmp_path / "other/data").is_dir()


def test_what_is_no_cache_is_left_alone(url: str, tmp_path: Path) -> None:
    (tmp_path / "home/data").mkdir(parents=True)
    (tmp_path / "home/data/photo.jpg").write_bytes(b"...")
    with pytest.raises(InvalidRequest, match="is not empty and not a cache"):
        quivermq.open(url, cache=tmp_path / "home")
    assert (tmp_path / "home/data/photo.jpg").read_bytes() == b"..."
    with pytest.raises(InvalidRequest, match="is not a directory: a cache needs one of its own"):
        quivermq.open(url, cache=tmp_path / "home/data/photo.jpg")
    with pytest.raises(InvalidRequest, match="a cache is the path of a directory, not 5"):
        quivermq.open(url, cache=5)  # type: ignore[arg-type]


def test_a_directory_has_no_cache(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is a directory, and needs no cache"):
        quivermq.open(tmp_path / "data", cache=tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_is_not_in_the_cache(url: str, tmp_path: Path) -> None:
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        for inside in ("archive", tmp_path / "cache/data/archive"):
            with pytest.raises(InvalidRequest, match="is in the cache of a bucket, and would be lost"):
                mq.use_archive(inside)
        with pytest.raises(NotFound):
            mq.use_archive(tmp_path / "archive")


# Opening that fails.


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("ftp://host/a", StoreNotFound),
        ("s3://key:secret@bucket", InvalidRequest),
        (Path("s3://bucket"), InvalidRequest),
    ],
)
def test_a_place_that_is_none_is_refused(
    place: Any, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        quivermq.open(place)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_refused_leave_nothing_behind(url: str, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    settings: dict[str, Any] = {"topics": {"partitions": 0}}
    with pytest.raises(InvalidSettings):
        quivermq.open(url, settings, cache=tmp_path / "cache")
    assert set(threading.enumerate()) <= before
    quivermq.open(url, cache=tmp_path / "cache").close()


def test_a_store_that_does_not_answer_is_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without any, it is the machine's own service of credentials that does not answer, or refuses.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    before = set(threading.enumerate())
    settings = {"bucket": {"endpoint": "http://127.0.0.1:1", "commit_timeout_ms": 1}}
    with pytest.raises(StoreUnreachable, match="s3://bucket does not answer"):
        quivermq.open("s3://bucket", settings, cache=tmp_path / "cache")
    assert set(threading.enumerate()) <= before
    quivermq.open((tmp_path / "store").as_uri(), cache=tmp_path / "cache").close()


def test_the_cache_is_as_large_as_the_settings_say() -> None:
    limits = store_limits(BucketSettings(cache_bytes_max=7, cache_free_bytes_min=8))
    assert (limits.cache_bytes_max, limits.cache_free_bytes_min) == (7, 8)
    # What is not said is as for any shared disk, but that nobody else says who the owner is.
    assert store_limits(BucketSettings()) == SharedLimits(owner_check_s=10)


# Closing that fails.


def test_a_store_that_is_gone_at_the_end(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"bucket": {"commit_timeout_ms": 50}, "storage": {"durability": "os"}}
    mq = quivermq.open(url, settings, cache=tmp_path / "cache")
    mq.queue("orders").put(b"kept")
    mq.sync()

    def fail(*_: object) -> bool:
        raise StoreUnreachable("it is gone")

    with monkeypatch.context() as patch:
        patch.setattr(BucketStore, "put_if_absent", fail)
        mq.queue("orders").put(b"lost")
        with pytest.raises(StoreUnreachable, match="what was not on stable storage before is lost"):
            mq.close()
    mq.close()
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        assert values(mq) == [b"kept"]


def test_a_full_cache_can_be_closed_when_there_is_room(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"storage": {"durability": "buffered", "linger_ms": 3_600_000}}
    mq = quivermq.open(url, settings, cache=tmp_path / "cache")
    mq.queue("orders").put(b"tea")
    mq.sync()
    mq.queue("orders").put(b"milk")

    def full(self: object, *_: object) -> int:
        raise DiskFull(tmp_path, needed_bytes=1)

    with monkeypatch.context() as patch:
        patch.setattr("quivermq.disk.SystemFile.append", full)
        with pytest.raises(DiskFull):
            mq.close()
    mq.close()
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        assert values(mq) == [b"tea", b"milk"]


# Processes.


def test_a_forked_child_can_neither_use_nor_end_it(url: str, tmp_path: Path) -> None:
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        mq.queue("orders").put(b"tea")
        child = os.fork()
        if child == 0:
            code = 9
            try:
                code = _what_a_child_may_do(mq, url, tmp_path)
            finally:
                # Whatever was raised: a second run of all tests is not to begin here.
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        mq.queue("orders").put(b"milk")
    with quivermq.open(url, cache=tmp_path / "cache") as mq:
        assert values(mq) == [b"tea", b"milk"]


def _what_a_child_may_do(mq: quivermq.Connection, url: str, tmp_path: Path) -> int:
    """0 when it is refused everything, by name and at once."""
    try:
        mq.queue("orders").put(b"not mine")
        return 1
    except Closing:
        mq.close()
    try:
        quivermq.open(url, cache=tmp_path / "child")
        return 2
    except InvalidRequest as error:
        return 0 if "start it anew" in str(error) else 3


def test_the_disk_may_be_any_for_a_directory(tmp_path: Path) -> None:
    with open_at(tmp_path / "data", disk=SystemDisk()) as engine:
        assert not isinstance(engine, BucketEngine)
