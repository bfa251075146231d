"""Where a queue is: in a directory, which is a path, or in a bucket, which is a URL.

What is checked here is only what can be told from the text; nobody is asked.
"""

import os
import re
from pathlib import Path, PurePath

from quivermq.errors import InvalidRequest, StoreNotFound

SCHEMES = ("s3", "gs", "az", "file")

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
# What a path makes of a URL: two slashes become one.
_FLATTENED = re.compile(rf"(?:{'|'.join(SCHEMES)}):/")


def is_bucket(place: object) -> bool:
    """Whether a place is a URL. All else is a path: `./s3://` is one as well."""
    return isinstance(place, str) and _URL.match(place) is not None


def check_bucket(url: str) -> str:
    """The URL of a bucket as it is shown, without a slash at its end.

    It may be printed and logged, and so holds no credentials. Raises StoreNotFound for another kind of
    URL, and InvalidRequest for one that is no `scheme://bucket/prefix`.
    """
    found = _URL.fullmatch(url)
    if found is None or (scheme := found[1].lower()) not in SCHEMES:
        # Only the kind: the rest may be anything, a password for instance.
        kind = "what is there" if found is None else f"{found[1]}://"
        kinds = ", ".join(f"{each}://" for each in SCHEMES)
        advice = "; a broker is reached with connect(url), or --server" if kind.startswith("http") else ""
        raise StoreNotFound(f"{kind} is no address of an object store: use one of {kinds}{advice}")
    rest = found[2].rstrip("/")
    bucket, _, prefix = rest.partition("/")
    if set(rest) & set("?#") or "@" in bucket:
        raise InvalidRequest(
            f"the URL of a bucket is {scheme}://bucket/prefix and nothing more: credentials come from the"
            " environment, as for other tools of the store, all else from the settings of [bucket]"
        )
    if (not bucket) != (scheme == "file") or not (bucket or prefix):
        form = "file:///directory" if scheme == "file" else f"{scheme}://bucket/prefix"
        raise InvalidRequest(f"{url!r:.300} names no bucket: write {form}")
    if not rest.isprintable() or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise InvalidRequest(
            f"{url!r:.300} has a prefix that no object can have: use plain names between /"
        )
    return f"{scheme}://{rest}"


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise InvalidRequest for a path that was a URL once: a directory called `s3:` is nobody's wish."""
    if isinstance(path, PurePath) and _FLATTENED.match(os.fspath(path)):
        raise InvalidRequest(
            f"{os.fspath(path)!r:.300} looks like a URL that became a path: give it as text, with two"
            " slashes, such as s3://bucket/prefix"
        )


def place_of(text: str) -> Path | str:
    """The place that somebody wrote: a URL as it is shown, or a path. Raises what `check_bucket` does."""
    return check_bucket(text) if is_bucket(text) else Path(text)
