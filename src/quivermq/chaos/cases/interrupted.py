"""kill -9 in the middle of retention, of shortening journals, and of sending dead letters back."""

from dataclasses import asdict
from pathlib import Path

from quivermq.chaos.cases.kill import let_work, look_at_the_end, over_http_with
from quivermq.chaos.expectation import expect
from quivermq.chaos.numbered import number_in
from quivermq.chaos.promises import Promises
from quivermq.chaos.trial import Trial, opened_to_look, read_all
from quivermq.chaos.worker import Errand

_STEPS_MAX = 30
_NUMBERS_PER_LIFE = 1000


def engine(trial: Trial) -> None:
    """A worker that mostly gives messages up, sends them back, and shortens files."""
    promises, errand = Promises(), Errand(0)
    with trial.nursery() as lives:
        for life in range(trial.cycles):
            errand.life, errand.tidies = life, True
            lives.begin(
                kind="worker", path=str(trial.data), settings={"durability": "os"}, errand=asdict(errand)
            )
            let_work(lives, promises, trial.rng)
            errand = promises.stopped()
            trial.tried += 1
    look_at_the_end(trial, promises)
    check_files(trial.data)


def over_http(trial: Trial) -> None:
    """The same, asked of a broker that is killed."""
    over_http_with(trial, {"durability": "os"}, tidies=True)
    check_files(trial.data)


def retention(trial: Trial) -> None:
    """Segments go as soon as they are finished: never one that is not, and never in part."""
    put: set[int] = set()
    tried: set[int] = set()
    maybe_acked: set[int] = set()
    with trial.nursery() as lives:
        for life in range(trial.cycles):
            lives.begin(kind="keeper", path=str(trial.data), number=life * _NUMBERS_PER_LIFE)
            told = [lives.read() for _ in range(trial.rng.randint(0, _STEPS_MAX))]
            for word, rest in (*told, *lives.kill()):
                step, numbers = rest
                target = maybe_acked if step == "ack" else tried if word == "try" else put
                target.update(numbers)
            trial.tried += 1
            _check_kept(trial.data, put, tried, maybe_acked)
    check_files(trial.data)


def _check_kept(path: Path, put: set[int], tried: set[int], maybe_acked: set[int]) -> None:
    with opened_to_look(path, later_s=7200) as opened:
        if "kept" not in opened.topics():
            expect(not put, "the topic is gone")
            return
        found = [number_in(record.value) for record in read_all(opened.queue("kept"))]
        expect(len(set(found)) == len(found), f"doubled: {found}")
        lost = put - maybe_acked - set(found)
        expect(not lost, f"unfinished, and gone: {sorted(lost)[:10]}")
        expect(set(found) <= tried, "something is there that nobody put")
        expect(opened.verify().is_sound, "a log is damaged")


def check_files(path: Path) -> None:
    """Nothing is left lying about: every index has its log, and nothing waits to be renamed."""
    files = {each.relative_to(path) for each in path.rglob("*") if each.is_file()}
    orphans = [each for each in files if each.suffix == ".idx" and each.with_suffix(".log") not in files]
    orphans += [each for each in files if each.suffix in (".tmp", ".new") or "@quarantine" in each.parts]
    expect(not orphans, f"orphan files: {orphans}")
