"""Changes of topics are kept until they are taken, and a deletion is not forgotten over what follows."""

from quivermq.group.member import TopicChanges


def test_what_is_noted_is_taken_once() -> None:
    changes = TopicChanges()
    changes.note("a", is_deleted=False)
    changes.note("b", is_deleted=True)
    assert changes.take() == {"a": False, "b": True}
    assert changes.take() == {}


def test_a_topic_that_comes_again_was_deleted_all_the_same() -> None:
    changes = TopicChanges()
    for is_deleted in (False, True, False):
        changes.note("a", is_deleted=is_deleted)
    assert changes.take() == {"a": True}
    changes.note("a", is_deleted=False)
    assert changes.take() == {"a": False}
