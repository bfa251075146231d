"""A million messages that wait, all of them due soon, take little memory."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import random, resource, sys
from quivermq.log import DataDirectory
from quivermq.settings import StorageSettings
from quivermq.topic.delay import Delayed, DelayStore

NOW, COUNT, STEP = 1_700_000_000_000_000, 1_000_000, 1000
OS = StorageSettings(durability="os")

def grown_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before

def opened():
    directory = DataDirectory(sys.argv[1], OS)
    lane = lambda partition, lane: directory.log(f"topics/t/p{partition}/{lane}", OS)
    return directory, DelayStore(directory, "topics/t/delayed", OS, lane)

directory, store = opened()
rng = random.Random(1)
before = 0
before = grown_bytes()
for _ in range(0, COUNT, STEP):
    dues = [NOW + 1 + rng.randrange(3_600_000_000) for _ in range(STEP)]
    store.put([Delayed(due, 0, 1, b"%100d" % due, None, None, NOW, None, None) for due in dues])
assert store.pending == COUNT
directory.close()
directory, store = opened()
assert store.pending == COUNT
released = sum(len(offsets) for _, _, offsets in store.release(NOW + 60_000_000))
assert store.pending == COUNT - released
dues = [int(record.value) for record in directory.log("topics/t/p0/1", OS).records()]
assert dues == sorted(dues)
assert len(dues) == released > COUNT // 100
directory.close()
print(grown_bytes())
"""


def test_a_million_messages_take_little_memory(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "data"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 100_000_000
