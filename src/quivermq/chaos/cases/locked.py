"""Two processes want one directory, and the one that has it dies."""

from quivermq.chaos.broker import LIVES, BrokerProcess, broker
from quivermq.chaos.expectation import Unkept, expect
from quivermq.chaos.nursery import Nursery, nursery
from quivermq.chaos.trial import Trial
from quivermq.chaos.worker import Errand
from quivermq.engine import open_engine
from quivermq.errors import DirectoryLocked


def engine(trial: Trial) -> None:
    """A process that has the directory open is named to whoever comes second; dead, it keeps nobody out."""
    with trial.nursery() as lives:
        for life in range(trial.cycles):
            pid = lives.begin(kind="worker", path=str(trial.data), settings={}, errand=vars(Errand(life)))
            # Its first step: the directory is open.
            lives.read()
            _check_refused(trial, pid)
            list(lives.kill())
            open_engine(trial.data).close()
            trial.tried += 1


def over_http(trial: Trial) -> None:
    """A second broker says who the first one is, and ends; when that is dead, it serves."""
    with trial.nursery() as lives, nursery(LIVES) as others, broker(lives, trial.data) as process:
        for cycle in range(trial.cycles):
            expect(process.caller().publish("t", f"{cycle}").is_done, "a publish failed")
            _check_refused(trial, process.pid)
            _check_second(others, trial, process.pid)
            process.kill()
            with broker(others, trial.data) as second:
                expect(
                    second.caller().values("t") == [str(n) for n in range(cycle + 1)], "messages are lost"
                )
                second.stop()
            process.start()
            trial.tried += 1


def _check_refused(trial: Trial, pid: int) -> None:
    try:
        open_engine(trial.data).close()
    except DirectoryLocked as error:
        expect(error.pid == pid, f"the holder is {pid}, and {error.pid} was named")
        expect(str(pid) in str(error), f"the holder is not named: {error}")
    else:
        raise Unkept("two processes have one directory open")


def _check_second(others: Nursery, trial: Trial, pid: int) -> None:
    second = BrokerProcess(others, trial.data)
    try:
        second.start()
    except Unkept as error:
        # What the second broker said on its way out.
        expect(f"in use by process {pid}" in str(error), f"it did not say who has the directory: {error}")
        others.read()
    else:
        raise Unkept("two brokers serve one directory")
