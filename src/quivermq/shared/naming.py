"""How objects are called in a bucket. Numbers have 20 digits, so that names sort as numbers do.

chunk/<number>                          where a conditional put decides
chunk/<epoch>-<random>                  where etcd does
checkpoint/<number>-<epoch>-<random>
file/<epoch>-<random>
quarantine/<random>/<name>              what a repair has set aside
"""

import re
from os import urandom

from quivermq.shared.chunk import damaged

CHUNK = "chunk/"
CHECKPOINT = "checkpoint/"
FILE = "file/"
# What a repair has set aside, under the names that it had.
QUARANTINE = "quarantine/"
# The chunk of a number, where the name decides.
NUMBERED = re.compile(r"chunk/([0-9]{20})")


def numbered(number: int) -> str:
    """The chunk of a number, where the name decides."""
    return f"{CHUNK}{number:020d}"


def unique(kind: str, *numbers: int) -> str:
    """A name that nobody has used, nor ever will."""
    return kind + "".join(f"{number:020d}-" for number in numbers) + urandom(8).hex()


def first_number(name: str) -> int:
    """The first number in a name. Raises DamagedChunk for one that nobody here has made."""
    digits = name.partition("/")[2].partition("-")[0]
    if not (digits.isascii() and digits.isdigit()):
        raise damaged(name, "no object of a queue has such a name")
    return int(digits)
