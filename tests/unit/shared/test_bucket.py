"""What is made of the answers of obstore; a stand-in gives them, because nothing else needs obstore."""

import builtins
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.shared import files_of, write

from quivermq.errors import (
    DamagedChunk,
    InvalidRequest,
    NotOwner,
    QuiverError,
    StoreDenied,
    StoreNotFound,
    StoreUnreachable,
    UnsafeStore,
)
from quivermq.shared import open_bucket
from quivermq.shared.bucket import BucketStore
from quivermq.shared.conditional import ConditionalChunks


class BaseError(Exception): ...


class AlreadyExistsError(BaseError): ...


class GenericError(BaseError): ...


class PermissionDeniedError(BaseError): ...


class UnauthenticatedError(BaseError): ...


class NotSupportedError(BaseError): ...


class FakeObstore:
    """The calls that are used, over a dict for each URL."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.opened: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.is_safe = True

    def from_url(self, url: str, **options: Any) -> dict[str, bytes]:
        self.opened.append((url, options))
        return self.buckets.setdefault(url, {})

    def put(
        self, store: dict[str, bytes], name: str, data: bytes, mode: str = "overwrite", **_: Any
    ) -> None:
        self._fail()
        if mode == "create" and self.is_safe and name in store:
            raise AlreadyExistsError(name)
        store[name] = data

    def get(self, store: dict[str, bytes], name: str) -> SimpleNamespace:
        self._fail()
        if name not in store:
            raise FileNotFoundError(f"Object at location {name} not found: NoSuchKey")
        data = store[name]
        return SimpleNamespace(meta={"size": len(data)}, bytes=lambda: memoryview(data))

    def get_range(self, store: dict[str, bytes], name: str, *, start: int, length: int) -> memoryview:
        self._fail()
        if name not in store:
            raise FileNotFoundError(name)
        if start >= len(store[name]):
            raise GenericError(f"Invalid range: StartTooLarge {{ requested: {start} }}")
        return memoryview(store[name])[start : start + length]

    def list(self, store: dict[str, bytes], prefix: str) -> Iterator[list[dict[str, Any]]]:
        self._fail()
        for name in sorted(store, reverse=True):
            if name.startswith(prefix):
                yield [{"path": name, "size": len(store[name])}]

    def delete(self, store: dict[str, bytes], names: builtins.list[str]) -> None:
        self._fail()
        for name in names:
            if name not in store:
                raise FileNotFoundError(name)
            del store[name]

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def obstore(monkeypatch: pytest.MonkeyPatch) -> FakeObstore:
    fake = FakeObstore()
    module, exceptions, store = (ModuleType(f"obstore{name}") for name in ("", ".exceptions", ".store"))
    errors = (
        BaseError,
        AlreadyExistsError,
        GenericError,
        PermissionDeniedError,
        UnauthenticatedError,
        NotSupportedError,
    )
    vars(exceptions).update({each.__name__: each for each in errors})
    vars(store).update(from_url=fake.from_url)
    vars(module).update(
        exceptions=exceptions,
        store=store,
        put=fake.put,
        get=fake.get,
        get_range=fake.get_range,
        list=fake.list,
        delete=fake.delete,
    )
    for each in (module, exceptions, store):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return fake


def test_a_range_of_an_object(obstore: FakeObstore) -> None:
    store = BucketStore("memory:///")
    store.put("a", b"0123456789")
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 8, 3) == b"89"
    assert store.get_range("b", 0, 3) is None
    with pytest.raises(DamagedChunk, match="shorter than it was written"):
        store.get_range("a", 10, 1)


@pytest.mark.parametrize("act", ["put", "put_if_absent", "names"])
def test_a_server_that_has_nothing_is_no_store(obstore: FakeObstore, act: str) -> None:
    store = BucketStore("memory:///")
    obstore.error = FileNotFoundError("404 page not found")
    acts: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("a", b""),
        "put_if_absent": lambda: store.put_if_absent("a", b""),
        "names": lambda: store.names(""),
    }
    with pytest.raises(StoreNotFound, match="is no bucket: look at its endpoint"):
        acts[act]()


def test_objects_are_put_found_and_removed(obstore: FakeObstore) -> None:
    store = BucketStore("memory:///")
    store.put("a/2", b"two")
    assert store.put_if_absent("a/1", b"one")
    assert not store.put_if_absent("a/1", b"other")
    assert store.get("a/1", 3) == b"one"
    assert store.get("a/3", 3) is None
    with pytest.raises(DamagedChunk, match="has 3 bytes, at most 2"):
        store.get("a/1", 2)
    assert store.names("a/") == ["a/1", "a/2"]
    store.remove([])
    # Where one is missing, the others go all the same.
    store.remove(["a/1", "a/0", "a/2"])
    assert store.names("") == []
    store.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GenericError("error sending request\n\nDebug source: ..."), StoreUnreachable),
        (GenericError("503 Service Unavailable: SlowDown"), StoreUnreachable),
        (OSError("connection reset"), StoreUnreachable),
        (PermissionDeniedError("it lacked the privileges"), StoreDenied),
        (UnauthenticatedError("no token"), StoreDenied),
        (GenericError("non-2xx status code: 403 Forbidden: <Code>InvalidAccessKeyId"), StoreDenied),
        (GenericError("404: <Code>NoSuchBucket</Code>"), StoreNotFound),
        (FileNotFoundError("404: <Code>NoSuchBucket</Code>"), StoreNotFound),
        (GenericError("404: ContainerNotFound"), StoreNotFound),
        (NotSupportedError("no conditional put"), UnsafeStore),
        (GenericError("501 Not Implemented"), UnsafeStore),
    ],
)
def test_errors_say_what_to_do(obstore: FakeObstore, error: Exception, expected: type[QuiverError]) -> None:
    store = BucketStore("s3://bucket/prefix")
    obstore.error = error
    for act in (
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.get("a", 1),
        lambda: store.get_range("a", 0, 1),
        lambda: store.names("a"),
        lambda: store.remove(["a"]),
    ):
        with pytest.raises(expected, match="s3://bucket/prefix") as raised:
            act()
        assert "Debug source" not in str(raised.value)


def test_a_conflict_where_nothing_was_forbidden_may_be_gone_the_next_time(obstore: FakeObstore) -> None:
    store = BucketStore("s3://bucket/prefix")
    obstore.error = AlreadyExistsError("409 Conflict")
    assert not store.put_if_absent("a", b"")
    with pytest.raises(StoreUnreachable, match="409 Conflict"):
        store.put("a", b"")
    with pytest.raises(StoreUnreachable, match="409 Conflict"):
        store.remove(["a"])


def test_an_endpoint_without_tls_is_meant_so(obstore: FakeObstore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    BucketStore("s3://bucket")
    BucketStore("s3://bucket", {"endpoint": "http://127.0.0.1:9000"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    BucketStore("s3://bucket", timeout_s=2)
    allowed = [options["client_options"]["allow_http"] for _, options in obstore.opened]
    assert allowed == [False, True, True]
    assert obstore.opened[2][1]["client_options"]["timeout"] == "2s"


@pytest.mark.parametrize("url", ["ftp://host/x", "bucket", "", "s3:bucket"])
def test_an_address_of_another_kind_is_refused(obstore: FakeObstore, url: str) -> None:
    with pytest.raises(StoreNotFound, match="is no address of an object store: use one of s3://, gs://"):
        BucketStore(url)


def test_without_obstore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'quivermq\[bucket\]'"):
        BucketStore("memory:///")


def test_a_queue_in_a_bucket_goes_from_process_to_process(obstore: FakeObstore, tmp_path: Path) -> None:
    first = open_bucket("file:///shared", tmp_path / "first")
    write(first, "a", b"x")
    first.sync_directory(first.root)
    second = open_bucket("file:///shared", tmp_path / "second")
    assert files_of(second) == {"a": b"x"}
    write(first, "b", b"late")
    with pytest.raises(NotOwner):
        first.sync_directory(first.root)
    first.close()
    second.close()


def test_a_new_bucket_is_tried_first(obstore: FakeObstore, tmp_path: Path) -> None:
    obstore.is_safe = False
    with pytest.raises(UnsafeStore):
        open_bucket("s3://bucket", tmp_path / "cache")
    assert obstore.buckets["s3://bucket"] == {}
    obstore.is_safe = True
    ConditionalChunks(BucketStore("s3://bucket")).claim()
    obstore.is_safe = False
    # Only a new one: a queue that was safe yesterday has to open fast.
    open_bucket("s3://bucket", tmp_path / "cache").close()
