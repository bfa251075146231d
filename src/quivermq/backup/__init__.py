"""Backups: pictures of a queue at many moments in a directory or a bucket, and queues made from them."""

from quivermq.backup.checking import check_backups
from quivermq.backup.making import BackupSource, make_backup
from quivermq.backup.restoring import restore, restore_from
from quivermq.backup.sets import BackupSet
from quivermq.backup.targets import open_set

__all__ = [
    "BackupSet",
    "BackupSource",
    "check_backups",
    "make_backup",
    "open_set",
    "restore",
    "restore_from",
]
