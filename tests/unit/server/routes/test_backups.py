"""Backups over HTTP: only where the settings of the broker say."""

from pathlib import Path

import pytest
from support.site import Site
from unit.server.routes.conversation import status_and_code, told

import quivermq
from quivermq.errors import Denied
from quivermq.server.routes import backups


def test_it_goes_where_the_settings_say_named_or_not(tmp_path: Path) -> None:
    target = str(tmp_path / "backups")
    with Site(backups.ROUTES, backup_target=target) as site:
        site.engine.queue("orders").put(b"x")
        assert told(site.ask("POST", "/v1/backups", {"target": target}))["number"] == 1
        assert told(site.ask("POST", "/v1/backups", {"target": None}))["number"] == 2
        elsewhere = {"target": str(tmp_path / "elsewhere")}
        assert status_and_code(site, "POST", "/v1/backups", elsewhere) == (403, "denied")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups"]
    assert quivermq.restore(target, tmp_path / "restored").report.messages == 1


@pytest.mark.parametrize("wanted", [None, "/", "s3://bucket/path"])
def test_without_the_setting_there_are_none(wanted: str | None) -> None:
    with pytest.raises(Denied, match="backup_target"):
        backups._allowed("", wanted)
