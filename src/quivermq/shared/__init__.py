"""A disk whose truth is an object store: what is done to files is committed there, chunk by chunk."""

from quivermq.shared.disk import SharedDisk
from quivermq.shared.limits import SharedLimits
from quivermq.shared.opening import is_in_bucket, open_bucket, open_shared

__all__ = ["SharedDisk", "SharedLimits", "is_in_bucket", "open_bucket", "open_shared"]
