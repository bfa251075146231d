"""Where a queue is: what is a URL, and what a URL may say."""

from pathlib import Path

import pytest

from quivermq.errors import InvalidRequest, InvalidSettings, StoreNotFound
from quivermq.settings import ServerSettings, check_bucket, check_path, is_bucket, load_settings, place_of


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("s3://bucket", True),
        ("nonsense://bucket", True),
        ("data", False),
        ("./s3://bucket", False),
        ("s3:bucket", False),
        (Path("s3://bucket"), False),
        (None, False),
    ],
)
def test_only_text_with_a_scheme_is_a_bucket(place: object, expected: bool) -> None:
    assert is_bucket(place) is expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a@b", "az://container/a@b"),
        ("file:///some/directory/", "file:///some/directory"),
    ],
)
def test_a_url_is_shown_in_one_way(url: str, shown: str) -> None:
    assert check_bucket(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/a",
        "s3://bucket/a?secret=x",
        "s3://bucket/a#secret",
        "http://key:secret@host",
        "secret",
    ],
)
def test_a_url_with_more_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_bucket(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///a", "file://", "file:///", "file://a/b", "s3://b//a", "s3://b/../a", "s3://b/\n"],
)
def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"names no bucket|no object can have"):
        check_bucket(url)


def test_another_kind_of_url_is_named() -> None:
    with pytest.raises(StoreNotFound, match=r"ftp:// is no address of an object store: use one of s3://"):
        check_bucket("ftp://host/a")
    with pytest.raises(StoreNotFound, match="a broker is reached with connect"):
        check_bucket("http://127.0.0.1:7070")


def test_a_path_that_was_a_url_is_refused() -> None:
    check_path(Path("data"))
    with pytest.raises(InvalidRequest, match="looks like a URL that became a path: give it as text"):
        check_path(Path("s3://bucket/a"))


def test_a_place_is_read_from_text() -> None:
    assert place_of("s3://bucket/a/") == "s3://bucket/a"
    assert place_of("some/data") == Path("some/data")


def test_a_broker_is_set_to_a_bucket_or_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "quiver.toml"
    file.write_text('[server]\ndata = "s3://bucket/a/"\n')
    assert load_settings(toml=file).settings.server.data == "s3://bucket/a"
    file.write_text('[server]\ndata = "data"\n')
    assert load_settings(toml=file).settings.server.data == tmp_path / "data"
    assert ServerSettings(data="gs://bucket").data == "gs://bucket"
    for wrong in ("s3://k:s@bucket", 'ftp://x"', "s3://"):
        with pytest.raises(InvalidSettings, match=r"server\.data"):
            load_settings(environ={"QUIVER_SERVER__DATA": wrong})
    with pytest.raises(InvalidSettings, match=r"server\.data"):
        ServerSettings(data="a directory is a Path")


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:9000", "http://key:secret@host", "https://host/?a=secret", "ftp://host"]
)
def test_an_endpoint_is_a_url_without_credentials(endpoint: str) -> None:
    with pytest.raises(InvalidSettings, match=r"bucket\.endpoint: it is not a URL such as") as raised:
        load_settings(environ={"QUIVER_BUCKET__ENDPOINT": endpoint})
    assert "secret" not in str(raised.value)


def test_an_endpoint_may_be_left_out() -> None:
    given = load_settings(environ={"QUIVER_BUCKET__ENDPOINT": "http://127.0.0.1:9000"}).settings.bucket
    assert (given.endpoint, given.region) == ("http://127.0.0.1:9000", None)
    assert load_settings(environ={"QUIVER_BUCKET__ENDPOINT": "none"}).settings.bucket.endpoint is None
