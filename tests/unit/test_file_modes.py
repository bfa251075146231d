"""Who may read what is written: its owner alone, or a group that the directory was given to."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import quivermq
from quivermq.disk import OutputDisk, SystemDisk, replace_file
from quivermq.exporting import export
from quivermq.log import repair, verify
from quivermq.server.keys import create_key


@pytest.fixture(autouse=True, params=[0o000, 0o022], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def used(data: Path) -> None:
    """Leave every kind of file in a data directory that there is."""
    with quivermq.open(data) as mq:
        mq.create_topic("orders", partitions=2, segment_messages=2, dedup_window_ms=60_000)
        orders = mq.queue("orders", "g")
        for number in range(5):
            orders.put(b"x", dedup_id=str(number), priority="high" if number % 2 else "normal")
        orders.put(b"later", delay=3600)
        taken = orders.get_many(2)
        taken[0].ack()
        taken[1].reject("no")
        orders.redrive()
        mq.begin_producer("orders", 1)
        mq.compact()
    create_key(data, "read")
    log = next(data.glob("topics/orders/p0/normal/*.log"))
    log.write_bytes(log.read_bytes()[:-3] + b"xxx")
    assert not verify(data).is_sound
    repair(data)


def modes(data: Path) -> dict[str, str]:
    return {
        str(path.relative_to(data)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in [data, *data.rglob("*")]
    }


def test_everything_is_for_its_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    used(data)
    found = modes(data)
    assert len(found) > 20
    for name, mode in found.items():
        assert mode == ("0o700" if (data / name).is_dir() else "0o600"), name
    assert stat.S_IMODE(data.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o750, 0o2755])
def test_what_a_umask_left_of_the_directory_gives_nobody_a_file(tmp_path: Path, mode: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    quivermq.open(data).close()
    assert {oct(stat.S_IMODE((data / name).stat().st_mode)) for name in os.listdir(data)} <= {
        "0o600",
        "0o700",
        "0o2700",
    }


def test_a_directory_of_a_group_is_for_the_group_in_all_its_parts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o2750)
    used(data)
    for name, mode in modes(data).items():
        if name == "keys.json":
            assert mode == "0o600"
        else:
            assert mode == ("0o2750" if (data / name).is_dir() else "0o640"), name


def test_a_stricter_umask_is_honoured(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o2750)
    before = os.umask(0o077)
    try:
        quivermq.open(data).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((data / "LOCK").stat().st_mode) == 0o600


def test_what_a_user_asked_for_by_name_has_the_rights_of_the_umask(tmp_path: Path, umask: int) -> None:
    with quivermq.open(tmp_path / "data") as mq:
        mq.queue("orders").put(b"x")
    export("orders", tmp_path / "orders.ndjson", path=tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "orders.ndjson").stat().st_mode) == 0o666 & ~umask
    OutputDisk().make_directory(tmp_path / "made")
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o777 & ~umask


def test_a_file_that_replaces_another_is_no_more_open(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o666)
    replace_file(SystemDisk(), path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
