"""Backups: where to, the settings of the broker say; a client only says when."""

from dataclasses import asdict
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from quivermq.backup.targets import TARGET_CHARACTERS_MAX
from quivermq.errors import Denied
from quivermq.model.backups import Backup
from quivermq.server.broker import Broker
from quivermq.server.http import Request
from quivermq.server.routing import Calls, Route
from quivermq.server.shapes import Count


class BackupIn(msgspec.Struct, forbid_unknown_fields=True):
    """Where the backup goes: what `server.backup_target` says; null stands for that."""

    schema_extra: ClassVar[dict[str, Any]] = {"examples": [{"target": "s3://backups/orders"}]}

    target: Annotated[str, Meta(min_length=1, max_length=TARGET_CHARACTERS_MAX)] | None = None


class BackupOut(msgspec.Struct):
    """The queue as it was at the moment `taken_us`, in unix microseconds, and how it is stored.

    `archive` is null, or the archive of the queue, which lies elsewhere and is not in the backup.
    """

    number: Count
    taken_us: Count
    files: Count
    bytes: Count
    new_bytes: Count
    archive: str | None


ROUTES: list[Route] = []
_backups = Calls(ROUTES, "/v1/backups", "operations", (404, 409, 507))


@_backups("POST", "", "Make a backup, where the settings of the broker say")
async def make(broker: Broker, _: Request, body: BackupIn) -> BackupOut:
    """Store the queue as it is now. Answers when the backup is whole, which may take long."""
    target = _allowed(broker.settings.backup_target, body.target)
    backup: Backup = await broker.run(broker.engine.backup, target)
    return BackupOut(**asdict(backup))


def _allowed(target: str, wanted: str | None) -> str:
    """The target of the settings, and no other: a client names no path of this machine."""
    if not target:
        raise Denied(
            "this broker makes no backups: say where they go as `backup_target` in [server] of its settings"
        )
    if wanted not in (None, target):
        raise Denied("this broker makes backups only where `server.backup_target` of its settings says")
    return target
