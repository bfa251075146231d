"""A bucket of Amazon, Google, Azure or anybody who speaks S3, a directory, or memory: through `obstore`.

`obstore` is imported when a bucket is opened: whoever has none needs nothing of it.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from quivermq.errors import (
    InvalidRequest,
    QuiverError,
    StoreDenied,
    StoreNotFound,
    StoreUnreachable,
    UnsafeStore,
)
from quivermq.settings.place import SCHEMES
from quivermq.shared.chunk import damaged

Answered = TypeVar("Answered")

_SCHEMES = (*SCHEMES, "memory")
REQUEST_TIMEOUT_S = 10.0

# How stores call what time does not heal. What none of these is in may be gone at the next attempt.
_DENIED = re.compile(
    r"\b40[13] (Forbidden|Unauthorized)|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch"
)
_NO_CREDENTIALS = re.compile(r"169\.254\.169\.254|metadata\.google\.internal|No valid credential")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_ELSEWHERE = re.compile(r"PermanentRedirect|AuthorizationHeaderMalformed|incorrectly configured region")
_NOT_IMPLEMENTED = re.compile(r"\b501 Not Implemented|NotImplemented")
_NO_RANGE = re.compile(r"\b416 |InvalidRange|StartTooLarge")
_WORDS_MAX = 300


# Once it has been asked: a process that is forked then has none of the threads that wait for answers.
_asking_pid: int | None = None


class BucketStore:
    """An `ObjectStore` at a URL, such as `s3://bucket/prefix` or `file:///directory`.

    `options` are those of `obstore`, for example `endpoint` and `region`; credentials are found as the
    tools of each store find them. Raises StoreNotFound for a URL of another kind, and InvalidRequest for
    options that do not fit the store, and in a process that was forked from one that had a store open.

    A directory is only as durable as its file system is without being synced.
    """

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.url = url
        self._obstore = _imported()
        _check_process()
        self._store = self._opened(url, dict(options or {}), timeout_s)

    def _opened(self, url: str, options: dict[str, str], timeout_s: float) -> Any:
        scheme = url.partition("://")[0]
        if scheme not in _SCHEMES or "://" not in url:
            kinds = ", ".join(f"{each}://" for each in _SCHEMES)
            raise StoreNotFound(f"{url!r} is no address of an object store: use one of {kinds}")
        from_url = self._obstore.store.from_url
        if scheme == "memory":
            return from_url(url)
        if scheme == "file":
            return self._made(lambda: from_url(url, mkdir=True))
        return self._made(
            lambda: from_url(
                url,
                config=options,
                client_options={
                    "timeout": f"{timeout_s}s",
                    "connect_timeout": f"{min(timeout_s, 3)}s",
                    # Whoever names an endpoint without TLS means it: a test, or a network of its own.
                    "allow_http": _endpoint(options).startswith("http://"),
                },
                # More than these are the caller's, who knows how long somebody waits.
                retry_config={"max_retries": 2},
            )
        )

    def _made(self, make: Callable[[], Any]) -> Any:
        """What does the asking. Nobody is asked for it: all that can be wrong is what was said."""
        try:
            return make()
        except PermissionError as error:
            raise StoreDenied(f"{self.url} cannot be used: {error}") from error
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise InvalidRequest(f"{self.url} cannot be used: {_told(error)}") from error

    def put(self, name: str, data: bytes) -> None:
        self._asked(name, lambda: self._obstore.put(self._store, name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        try:
            # In one request, because only that is decided as one.
            self._asked(
                name,
                lambda: self._obstore.put(self._store, name, data, mode="create", use_multipart=False),
                is_conditional=True,
            )
        except FileExistsError:
            return False
        return True

    def get(self, name: str, bytes_max: int) -> bytes | None:
        try:
            result = self._asked(name, lambda: self._obstore.get(self._store, name), may_be_missing=True)
        except FileNotFoundError:
            return None
        size = result.meta["size"]
        if size > bytes_max:
            raise damaged(name, f"it has {size} bytes, at most {bytes_max} belong there")
        return self._asked(name, lambda: bytes(result.bytes()))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        try:
            return self._asked(
                name,
                lambda: bytes(self._obstore.get_range(self._store, name, start=start, length=length)),
                may_be_missing=True,
            )
        except FileNotFoundError:
            return None

    def names(self, prefix: str) -> list[str]:
        return list(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        def listed() -> dict[str, int]:
            pages = self._obstore.list(self._store, prefix=prefix)
            return dict(sorted((each["path"], each["size"]) for page in pages for each in page))

        return self._asked(prefix, listed)

    def remove(self, names: Iterable[str]) -> None:
        # One by one where one is missing: some stores stop there.
        names = list(names)
        if not names:
            return
        try:
            self._asked(names[0], lambda: self._obstore.delete(self._store, names), may_be_missing=True)
        except FileNotFoundError:
            for name in names if len(names) > 1 else []:
                self.remove([name])

    def close(self) -> None:
        """Connections end with the object."""

    def _asked(
        self,
        name: str,
        ask: Callable[[], Answered],
        *,
        is_conditional: bool = False,
        may_be_missing: bool = False,
    ) -> Answered:
        """What the store answers. Besides our own errors it raises FileNotFoundError where that may be.

        And FileExistsError under a condition: stores answer other requests with 409 when they are busy.
        """
        exceptions = self._obstore.exceptions
        _check_process()
        try:
            return ask()
        except (FileNotFoundError, exceptions.BaseError, OSError, ValueError) as error:
            if is_conditional and isinstance(error, exceptions.AlreadyExistsError):
                raise FileExistsError(name) from error
            failure = _failure(self.url, error, exceptions)
            if failure is None and may_be_missing:
                raise FileNotFoundError(name) from error
            raise failure or self._no_store(error) from error

    def _no_store(self, error: Exception) -> StoreNotFound:
        """Something answers there, but not as an object store does to whoever puts or lists."""
        return StoreNotFound(f"{self.url} is no bucket: look at its endpoint ({_told(error)})")


def _check_process() -> None:
    global _asking_pid  # noqa: PLW0603 - It is of the process, as the threads are.
    pid = os.getpid()
    _asking_pid = _asking_pid or pid
    if _asking_pid != pid:
        # It would wait for ever.
        raise InvalidRequest(
            "this process was forked from one that had an object store open, and cannot use one: start it"
            " anew, as multiprocessing.get_context('spawn') does"
        )


def _imported() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise InvalidRequest(
            "a queue in an object store needs obstore: pip install 'quivermq[bucket]'"
        ) from error
    return obstore


def _endpoint(options: Mapping[str, str]) -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    given = (os.environ.get(name, "") for name in names)
    return options.get("endpoint", "") or options.get("aws_endpoint", "") or next(filter(None, given), "")


def _failure(url: str, error: Exception, exceptions: Any) -> QuiverError | None:
    """The error for what a store said; None when it is only that an object is not there."""
    words, told = str(error), _told(error)
    if _NO_BUCKET.search(words):
        return StoreNotFound(f"there is no bucket {url}: make it first ({told})")
    if _ELSEWHERE.search(words):
        return StoreNotFound(f"{url} is in another region: set bucket.region, or AWS_REGION ({told})")
    if isinstance(error, FileNotFoundError):
        return None
    if _NO_CREDENTIALS.search(words):
        return StoreDenied(f"there are no credentials for {url}: put them into the environment ({told})")
    if _NO_RANGE.search(words):
        return damaged(url, f"an object there is shorter than it was written ({told})")
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(error, denied) or _DENIED.search(words):
        return StoreDenied(f"{url} does not accept the credentials: {told}")
    if isinstance(error, exceptions.NotSupportedError) or _NOT_IMPLEMENTED.search(words):
        return UnsafeStore(f"{url} cannot do what a queue needs: {told}")
    return StoreUnreachable(f"{url} does not answer: {told}")


def _told(error: Exception) -> str:
    """What a store or its library said. The rest is how the library came to it."""
    return str(error).partition("\n\nDebug source")[0].replace("\n", " ")[:_WORDS_MAX]
