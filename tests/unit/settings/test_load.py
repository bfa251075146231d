from pathlib import Path

import pytest

from quivermq.errors import InvalidSettings
from quivermq.settings import load_settings, settings_from
from quivermq.settings.load import SETTINGS, variable_of


def write_toml(directory: Path, text: str) -> Path:
    path = directory / "quiver.toml"
    path.write_text(text)
    return path


def test_without_sources_everything_is_a_default() -> None:
    loaded = load_settings()
    assert set(loaded.origins.values()) == {"default"}
    assert {v.key: v.value for v in loaded.values()} == {k: s.default for k, s in SETTINGS.items()}


def test_each_source_overrules_the_one_before(tmp_path: Path) -> None:
    path = write_toml(tmp_path, '[storage]\nlinger_ms = 1\nbatch_messages = 1\nsegment_bytes = "1MiB"\n')
    environ = {"QUIVER_STORAGE__LINGER_MS": "2", "QUIVER_STORAGE__BATCH_MESSAGES": "2"}
    loaded = load_settings(toml=path, environ=environ, arguments={"storage.linger_ms": 3})
    storage = loaded.settings.storage
    assert (storage.linger_ms, storage.batch_messages, storage.segment_bytes) == (3, 2, 1024**2)
    assert loaded.origins["storage.linger_ms"] == "arguments"
    assert loaded.origins["storage.batch_messages"] == "environment QUIVER_STORAGE__BATCH_MESSAGES"
    assert loaded.origins["storage.segment_bytes"] == str(path)
    assert loaded.origins["storage.codec"] == "default"


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_can_be_set_from_the_environment(key: str) -> None:
    text = SETTINGS[key].text(SETTINGS[key].default)
    loaded = load_settings(environ={variable_of(key): text})
    assert loaded.origins[key] == f"environment {variable_of(key)}"
    assert loaded.settings == load_settings().settings


def test_a_limit_is_switched_off_by_none(tmp_path: Path) -> None:
    path = write_toml(tmp_path, "[storage]\nretention_ms = 5\nsegments_max = 5\n")
    loaded = load_settings(
        toml=path,
        environ={"QUIVER_STORAGE__RETENTION_MS": "none"},
        arguments={"storage.segments_max": None},
    )
    assert loaded.settings.storage.retention_ms is None
    assert loaded.settings.storage.segments_max is None


@pytest.mark.parametrize(
    ("toml", "key", "reason"),
    [
        ("[storage]\nsegmnt_bytes = 1\n", "storage.segmnt_bytes", "mean storage.segment_bytes?"),
        ("[storage]\nxyz = 1\n", "storage.xyz", "there is no such setting ("),
        ("[storage]\n'a.b' = 1\n", "storage.a.b", "there is no such setting"),
        ("[storge]\n", "storge", "is not one of the sections [storage]"),
        ("storage = 1\n", "storage", "is not one of the sections [storage]"),
        ("[[storage]]\nlinger_ms = 1\n", "storage", "is not one of the sections [storage]"),
        ("segment_bytes = 1\n", "segment_bytes", "is not one of the sections [storage]"),
        ("'storage.linger_ms' = 1\n", "storage.linger_ms", "is not one of the sections"),
        ("[storage]\nlinger_ms = true\n", "storage.linger_ms", "True is not a whole number"),
        ("[storage]\nlinger_ms = 1.5\n", "storage.linger_ms", "1.5 is not a whole number"),
        ("[storage.linger_ms]\nx = 1\n", "storage.linger_ms", "is not a whole number"),
        ("[storage]\nsegment_bytes = '64MB'\n", "storage.segment_bytes", "unknown unit"),
    ],
)
def test_a_mistake_in_the_file_names_the_key_and_the_file(
    tmp_path: Path, toml: str, key: str, reason: str
) -> None:
    path = write_toml(tmp_path, toml)
    with pytest.raises(InvalidSettings) as caught:
        load_settings(toml=path)
    assert caught.value.key == key
    assert caught.value.origin == str(path)
    assert reason in str(caught.value)


@pytest.mark.parametrize("content", [b"[storage", b"[storage]\nlinger_ms = \xff\n", b"a = 9" + b"9" * 5000])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "quiver.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidSettings, match="is not TOML") as caught:
        load_settings(toml=path)
    assert caught.value.key == caught.value.origin == str(path)


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read: No such file") as caught:
        load_settings(toml=tmp_path / "quiver.toml")
    assert caught.value.key == str(tmp_path / "quiver.toml")


@pytest.mark.parametrize(
    ("variable", "text", "key", "reason"),
    [
        ("QUIVER_STORAGE__LINGER", "1", "storage.linger", "did you mean storage.linger_ms?"),
        ("QUIVER_STORGE__LINGER_MS", "1", "storge.linger_ms", "there is no such setting"),
        ("QUIVER___X", "1", ".x", "there is no such setting"),
        ("QUIVER_storage__linger_ms", "1", "storage.linger_ms", "QUIVER_STORAGE__LINGER_MS"),
        ("QUIVER_STORAGE__LINGER_MS", "", "storage.linger_ms", "'' is not a whole number"),
        ("QUIVER_STORAGE__LINGER_MS", "soon", "storage.linger_ms", "'soon' is not"),
        ("QUIVER_STORAGE__CODEC", "brotli", "storage.codec", "'brotli' is not one of none"),
    ],
)
def test_a_mistake_in_the_environment_names_the_key_and_the_variable(
    variable: str, text: str, key: str, reason: str
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ={variable: text})
    assert caught.value.key == key
    assert caught.value.origin == f"environment {variable}"
    assert reason in caught.value.reason


@pytest.mark.parametrize("variable", ["QUIVER_HOME", "QUIVERS_A__B", "STORAGE__LINGER_MS", "PATH"])
def test_variables_that_are_not_settings_are_left_alone(variable: str) -> None:
    assert load_settings(environ={variable: "x"}).settings == load_settings().settings


def test_a_mistake_in_the_arguments_names_the_key() -> None:
    with pytest.raises(InvalidSettings, match="there is no such setting") as caught:
        load_settings(arguments={"linger_ms": 1})
    assert (caught.value.key, caught.value.origin) == ("linger_ms", "arguments")


def test_a_mistake_is_reported_even_where_it_is_overruled() -> None:
    with pytest.raises(InvalidSettings, match="'soon' is not"):
        load_settings(environ={"QUIVER_STORAGE__LINGER_MS": "soon"}, arguments={"storage.linger_ms": 1})


def test_values_that_do_not_go_together_name_the_origin(tmp_path: Path) -> None:
    path = write_toml(tmp_path, "[storage]\nsegments_min = 3\n")
    with pytest.raises(InvalidSettings, match="must be at least 3") as caught:
        load_settings(toml=path, environ={"QUIVER_STORAGE__SEGMENTS_MAX": "2"})
    assert caught.value.key == "storage.segments_max"
    assert caught.value.origin == "environment QUIVER_STORAGE__SEGMENTS_MAX"


def test_paths_in_the_file_begin_where_the_file_is(tmp_path: Path) -> None:
    path = write_toml(tmp_path, '[server]\ndata = "data"\nkeys = "/etc/keys.json"\ntls_key = "k.pem"\n')
    loaded = load_settings(toml=path, environ={"QUIVER_SERVER__TLS_KEY": "here.pem"})
    server = loaded.settings.server
    assert (server.data, server.keys) == (tmp_path / "data", Path("/etc/keys.json"))
    assert (server.tls_key, server.tls_certificate) == (Path("here.pem"), None)


@pytest.mark.parametrize(
    ("name", "text"),
    [("port", "70700"), ("port", "-1"), ("host", "a b"), ("log", "xml"), ("data", ""), ("data", "a\0b")],
)
def test_a_broker_that_cannot_be_is_refused(name: str, text: str) -> None:
    variable = variable_of(f"server.{name}")
    with pytest.raises(InvalidSettings, match=variable):
        load_settings(environ={variable: text})


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("30s", 30_000), ("5m", 300_000), ("12h", 43_200_000), ("7 d", 604_800_000)]
)
def test_a_period_may_have_a_unit(text: str, milliseconds: int) -> None:
    loaded = load_settings(environ={"QUIVER_STORAGE__RETENTION_MS": text})
    assert loaded.settings.storage.retention_ms == milliseconds


def test_a_mapping_is_like_the_file() -> None:
    settings = settings_from({"storage": {"linger_ms": "1s"}, "topics": {"lease_ms": 5}})
    assert (settings.storage.linger_ms, settings.topics) == (1000, {"lease_ms": 5})
    with pytest.raises(InvalidSettings, match="storge"):
        settings_from({"storge": {}})
    with pytest.raises(InvalidSettings, match="topics"):
        settings_from({"topics": 5})
