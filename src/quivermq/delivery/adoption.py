"""Going on where another queue was that messages were imported from: how far it came, its attempts."""

from quivermq.delivery import journal
from quivermq.delivery.state import LaneState, Wait
from quivermq.errors import InvalidRequest, OffsetOutOfRange
from quivermq.frame import OFFSET_MAX
from quivermq.log import Log
from quivermq.model.adoption import Progress
from quivermq.model.checks import check_number
from quivermq.topic.offsets import merged

ATTEMPTS_MAX = 2**31 - 1
RUNS_MAX = 20_000
"""It is one record of the journal, so that a crash leaves all of it or nothing."""


def check_progress(progress: Progress, log: Log | None) -> None:
    """Raise InvalidRequest or OffsetOutOfRange unless it is about messages that are there."""
    start, end = (log.start, log.end) if log is not None else (0, 0)
    if progress.position is not None:
        check_number("position", progress.position, 0, OFFSET_MAX)
        if not start <= progress.position <= end:
            raise OffsetOutOfRange(progress.position, start=start, end=end)
    if len(progress.tried) > RUNS_MAX:
        raise InvalidRequest(
            f"at most {RUNS_MAX} runs of messages are adopted at once: these are too scattered"
        )
    before = start
    for run in progress.tried:
        check_number("attempts", run.attempts, 0, ATTEMPTS_MAX)
        check_number("start", run.start, 0, OFFSET_MAX)
        check_number("end", run.end, run.start + 1, OFFSET_MAX)
        if run.start < before or run.end > end:
            raise OffsetOutOfRange(run.start if run.start < before else run.end, start=before, end=end)
        before = run.end


def is_there(state: LaneState, expected: Progress | None) -> bool:
    """Whether the group is exactly where it was put; with None, whether it has never been anywhere."""
    if state.leases:
        return False
    waiting = {offset: wait.attempt for offset, wait in state.waiting.items()}
    if expected is None:
        return not state.has_begun and not waiting
    stated = {offset: run.attempts for run in expected.tried for offset in range(run.start, run.end)}
    # What was never tried and lies behind `next` is stated nowhere.
    behind = {offset: n for offset, n in state.imported_attempts.items() if offset >= state.next}
    return state.next == (expected.position or 0) and {**behind, **waiting} == stated


def adopted_record(lane: int, state: LaneState, progress: Progress, now_us: int) -> bytes:
    """The changes of a journal that bring the progress about; none when there is nothing to change."""
    next_offset = state.next if progress.position is None else progress.position
    changes = [] if progress.position is None else [journal.sought(lane, next_offset)]
    waiting: dict[int, list[tuple[int, int]]] = {}
    tried: dict[int, list[tuple[int, int]]] = {}
    for run in progress.tried:
        if run.start < next_offset and progress.position is not None:
            waiting.setdefault(run.attempts, []).append((run.start, min(run.end, next_offset)))
        if run.end > next_offset and run.attempts:
            tried.setdefault(run.attempts, []).append((max(run.start, next_offset), run.end))
    # They are due at once: how long the other queue would have waited is not known.
    changes += [journal.waiting(lane, Wait(n, now_us), merged(each)) for n, each in waiting.items()]
    changes += [journal.tried(lane, n, merged(each)) for n, each in tried.items()]
    return b"".join(changes)
