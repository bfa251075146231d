"""What was moved stays where it went, also when there was no room for the note that it has arrived.

As long as it lies there, the next opening finds it. Once it was handled and retention has taken it, the
note is all there is.
"""

import pytest
from support.fault_count import count_faults
from support.queues import LONG_S, Life

from quivermq.errors import DiskRefused
from quivermq.reentry import outside
from quivermq.topic.removals import Move, Removals

pytestmark = pytest.mark.fault("interrupted", "engine")

STEPS_MAX = 100


def with_two_dead_letters() -> Life:
    life = Life()
    queue = life.create(delete_finished=True)
    for value in (b"one", b"two"):
        queue.put(value)
        life.get().reject()
    return life


def test_a_redrive_at_every_step_of_which_there_is_no_room() -> None:
    life, returned = with_two_dead_letters(), 0
    first = life.disk.steps + 1
    assert life.queue().redrive(limit=1) == 1
    last = life.disk.steps
    assert first < last < first + STEPS_MAX
    for step in range(first, last + 1):
        life = with_two_dead_letters()
        assert life.disk.steps + 1 == first
        life.disk.refuse("append", at=range(step, step + 1))
        try:
            life.queue().redrive(limit=1)
        except DiskRefused:
            continue
        finally:
            life.disk.refuse()
        life.get().ack()
        life.engine.compact()
        letters = life.killed().queue().dead_letters()
        assert [letter.value for letter in letters] == [b"two"], f"step {step}"
        returned += 1
        count_faults()
    assert returned


def test_a_burial_at_every_step_of_which_there_is_no_room() -> None:
    def with_a_message() -> Life:
        life = Life()
        queue = life.create()
        queue.put(b"before")
        life.get().reject()
        queue.put(b"bad")
        return life

    life, buried = with_a_message(), 0
    message = life.get()
    first = life.disk.steps + 1
    message.reject()
    last = life.disk.steps
    assert first < last < first + STEPS_MAX
    for step in range(first, last + 1):
        life = with_a_message()
        message = life.get()
        assert life.disk.steps + 1 == first
        life.disk.refuse("append", at=range(step, step + 1))
        try:
            message.reject()
        except DiskRefused:
            continue
        finally:
            life.disk.refuse()
        assert life.queue().discard() == 2
        # Time for retention, which alone does not write to the journal of the group.
        life.wait(LONG_S)
        found = life.killed()
        assert found.queue().dead_letters() == []
        found.wait(LONG_S)
        assert found.queue().get() is None, f"step {step}"
        buried += 1
        count_faults()
    assert buried


def test_what_is_on_its_way_back_stays_until_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may handle it, and retention come by, before the redrive itself has gone on."""
    life = with_two_dead_letters()
    finish, between = Removals.finish, list[object]()

    def finish_late(removals: Removals, move: Move) -> None:
        monkeypatch.undo()
        with outside():
            life.get().ack()
            between.append(life.engine.compact().segments)
            between.append([letter.value for letter in life.killed().queue().dead_letters()])
        finish(removals, move)

    monkeypatch.setattr(Removals, "finish", finish_late)
    assert life.queue().redrive(limit=1) == 1
    assert between == [0, [b"two"]]
    assert life.engine.compact().segments == 1
    assert [letter.value for letter in life.killed().queue().dead_letters()] == [b"two"]
