"""Opens what a crash left, in all the ways the promises have to hold."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from quivermq.log import verify
from quivermq.segment.scan import Found, FrameScan
from quivermq.settings import StorageSettings
from support.crash.ledger import Ledger, Model
from support.crash.witness import DATA, LOG, SMALL, Witness
from support.faulty_disk import FaultyDisk, every_crash

_MODELS: tuple[Model, ...] = ("kill", "power")

# How much more to try than a test run on every commit has time for.
THOROUGHNESS = int(os.environ.get("QUIVER_TEST_CRASH_SEEDS", "1"))


def seeds(count: int) -> range:
    """So many seeds, or as many times more as QUIVER_TEST_CRASH_SEEDS says."""
    return range(count * THOROUGHNESS)


def every(stride: int) -> int:
    """The stride to take through too many cases: shorter the more thorough the run is."""
    return max(1, stride // THOROUGHNESS)


def judge(
    crashed: FaultyDisk,
    ledger: Ledger,
    model: Model,
    settings: StorageSettings = SMALL,
    *,
    then_power_loss: bool = True,
) -> None:
    """Recover the disk, and check that everything that has to be true is, also after a power loss."""
    with told(crashed):
        _judge_what_is_served(crashed, ledger.copy(), model, settings, then_power_loss)
        _judge_files(crashed, settings)


def judge_interrupted_recovery(
    crashed: FaultyDisk,
    ledger: Ledger,
    model: Model,
    settings: StorageSettings = SMALL,
    *,
    seed: int,
) -> None:
    """Let the recovery of the disk crash as well, at every step, and check what the next one finds."""

    def recovery(disk: FaultyDisk, _: list[None]) -> None:
        Witness(disk, Ledger(), settings).data.close()

    # Both models take turns, so that neighbouring crashes see one each.
    second = _MODELS[seed % 2]
    for disk, _ in every_crash(recovery, model=second, seeds=[seed], start=crashed):
        disk.description += f"; in a recovery {crashed.description}"
        # What was safe from a kill alone is not, once the power is gone.
        glance(disk, ledger, "kill" if {model, second} == {"kill"} else "power", settings)


def glance(crashed: FaultyDisk, ledger: Ledger, model: Model, settings: StorageSettings = SMALL) -> None:
    """Recover the disk, and check the most important things, where there are too many for `judge`."""
    with told(crashed):
        disk, ledger = crashed.after_kill(), ledger.copy()
        witness = Witness(disk, ledger, settings)
        ledger.check(witness.log, model)
        ledger.adopt(witness.log)
        _check_after_power_loss(disk, ledger, settings, "what was recovered")
        witness.close()
        _check_files(disk, settings)


def _judge_what_is_served(
    crashed: FaultyDisk,
    ledger: Ledger,
    model: Model,
    settings: StorageSettings,
    then_power_loss: bool,
) -> None:
    disk = crashed.after_kill()
    witness = Witness(disk, ledger, settings)
    ledger.check(witness.log, model)
    ledger.adopt(witness.log)
    assert witness.log.synced_end == witness.log.end
    if then_power_loss:
        _check_after_power_loss(disk, ledger, settings, "what was recovered")
    witness.append("fsync")
    if then_power_loss:
        _check_after_power_loss(disk, ledger, settings, "what was appended after the recovery")
    witness.append_many("os", 900, 100)
    witness.append("os")
    ledger.check(witness.log, "kill")
    witness.close()
    _check_files(disk, settings)


def _check_after_power_loss(disk: FaultyDisk, ledger: Ledger, settings: StorageSettings, what: str) -> None:
    lost = disk.after_power_loss(disk.seed, keep="nothing")
    try:
        ledger.check(Witness(lost, ledger, settings).log, "power")
    except Exception as error:
        error.add_note(f"{what} did not survive a power loss")
        raise


def _judge_files(crashed: FaultyDisk, settings: StorageSettings) -> None:
    disk = crashed.after_kill()
    frames = list(_whole_frames(disk, settings))
    Witness(disk, Ledger(), settings).data.close()
    once = disk.files()
    kept = b"".join(once.values())
    assert all(frame in kept for frame in frames), "the recovery threw a whole frame away"
    Witness(disk, Ledger(), settings).data.close()
    assert disk.files() == once, "a second recovery changed something"
    _check_files(disk, settings)


def _whole_frames(disk: FaultyDisk, settings: StorageSettings) -> Iterator[bytes]:
    """Every frame that can be read, whether it has its place in the log or lies behind a hole."""
    for path, data in disk.files().items():
        if path.suffix == ".log":
            scan = FrameScan(disk.open(path), raw_bytes_max=settings.frame_raw_bytes_max)
            for found in scan.frames(0, int(path.stem)):
                if isinstance(found, Found):
                    yield data[found.position : found.end]


def _check_files(disk: FaultyDisk, settings: StorageSettings) -> None:
    assert not disk.mapped_then_cut
    paths = [path for path in disk.files() if path.parent == LOG]
    left_over = [path for path in paths if path.with_suffix(".log") not in paths or path.suffix == ".tmp"]
    assert not left_over
    faults = verify(DATA, settings, disk=disk).findings
    # An index may be lost, as when its segment was about to go, but never lie.
    assert [fault for fault in faults if fault.reason != "the index is missing or unreadable"] == []


@contextmanager
def told(disk: FaultyDisk) -> Iterator[None]:
    """Add to an error what happened to the disk before it."""
    try:
        yield
    except BaseException as error:
        error.add_note(disk.description)
        raise
