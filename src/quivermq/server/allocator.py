"""The allocator of the C library: large blocks go back to the system when they are freed.

glibc begins to keep large blocks once a process has freed some, and bodies and answers of all sizes leave
holes then that no other fits into: the process takes about twice of what it holds, and keeps it.
"""

import ctypes
import os

# Blocks from this size on are mapped by themselves, always. Usual batches are smaller.
LARGE_BYTES = 1024 * 1024

# As in malloc.h.
_M_MMAP_THRESHOLD = -3
_ENVIRONMENT = "MALLOC_MMAP_THRESHOLD_"


def return_large_blocks() -> bool:
    """Let the allocator do so; whether it does. Other C libraries need no telling, and have no such call.

    Who has said in the environment how it should be has the last word.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or _ENVIRONMENT in os.environ:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
