import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quivermq.errors import InvalidName
from quivermq.model.names import (
    DEAD_LETTER_SUFFIX,
    IMPORTS_TOPIC,
    NAME_LENGTH_MAX,
    Pattern,
    check_dead_letter_name,
    check_group_name,
    check_topic_name,
    is_pattern,
    origin_in,
    usual_origin,
)

GOOD = ["a", "0", "_", "-", "orders", "Orders.EU-1_x", ".a", "a.", "a..b", "..a", "x" * 249]
BAD: list[tuple[object, str]] = [
    ("", "is empty"),
    (".", "nothing but dots"),
    ("..", "nothing but dots"),
    ("." * 249, "nothing but dots"),
    ("a b", "use letters"),
    ("a/b", "use letters"),
    ("../a", "use letters"),
    ("a\\b", "use letters"),
    ("a\n", "use letters"),
    ("a\0", "use letters"),
    ("ä", "use letters"),
    ("\u0661", "use letters"),
    ("\ud800", "use letters"),
    ("a*", "use letters"),
    (">", "use letters"),
    ("x" * 250, "at most 249 characters, not 250"),
    ("/" * 249, "use letters"),
    (None, "is a str, not NoneType"),
    (b"a", "is a str, not bytes"),
    (7, "is a str, not int"),
    (["a"], "is a str, not list"),
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_taken(name: str) -> None:
    check_topic_name(name)
    check_group_name(name)


@pytest.mark.parametrize(("name", "reason"), BAD)
def test_a_bad_name_is_refused_with_a_reason(name: object, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason) as caught:
        check_topic_name(name)
    assert "a topic" in str(caught.value)
    assert len(str(caught.value)) < 250
    with pytest.raises(InvalidName, match=reason) as caught:
        check_group_name(name)
    assert "a group" in str(caught.value)


def test_the_longest_topic_can_have_dead_letters() -> None:
    name = "x" * NAME_LENGTH_MAX + DEAD_LETTER_SUFFIX
    check_topic_name(name)
    with pytest.raises(InvalidName, match="at most 253 characters, not 254"):
        check_topic_name("x" + name)
    with pytest.raises(InvalidName, match="at most 249 characters, not 253"):
        check_group_name(name)
    with pytest.raises(InvalidName, match="at most 249 characters, not 253"):
        check_topic_name("x" * 253)


def test_a_name_tells_whose_dead_letters_it_is_for_by_default() -> None:
    assert usual_origin("orders" + DEAD_LETTER_SUFFIX) == usual_origin("orders.dlq") == "orders"
    assert [usual_origin(name) for name in ("orders", "orders.dlq.x", "ordersdlq", ".dlq")] == [None] * 4
    told = {"orders-failed": "orders", "mails.dlq": None}
    assert [origin_in(told, name) for name in (*told, "a.dlq", "a")] == ["orders", None, "a", None]


def test_dead_letters_under_another_suffix_have_a_name_that_fits() -> None:
    check_dead_letter_name("x" * 249, ".dlq")
    check_dead_letter_name("x" * 240, "-failures")
    with pytest.raises(InvalidName, match="choose a shorter dead_letter_suffix"):
        check_dead_letter_name("x" * 241, "-failures")


@pytest.mark.parametrize(
    ("pattern", "takes"),
    [("orders.*", False), ("orders.>", False), ("orders.*.bad", True), ("*.tea.bad", True), (">", False)],
)
def test_dead_letters_of_any_suffix_are_taken_only_by_who_asks_for_them(pattern: str, takes: bool) -> None:
    assert Pattern(pattern).matches("orders.tea.bad", "orders.tea") is takes
    assert not Pattern("orders.*").matches("orders.tea-bad", "orders.tea")
    assert Pattern("orders.*").matches("orders.tea-bad", None)


@pytest.mark.parametrize(
    ("text", "result"),
    [("a.*", True), (">", True), ("a*b", True), ("a.b", False), ("", False), (None, False), (b"*", False)],
)
def test_a_pattern_is_told_from_a_name(text: object, result: bool) -> None:
    assert is_pattern(text) is result


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c", "A.b"]),
        ("a.*", ["a.b", "a.", "a.*"[:2] + "x"], ["a", "a.b.c", "b.a", "aa.b"]),
        ("*.b", ["a.b", ".b"], ["b", "a.c", "a.a.b"]),
        ("*", ["a", "dlq"], ["a.b", "a.", ".a"]),
        ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c", "a.b.d"]),
        ("a.>", ["a.b", "a.b.c", "a.b.c.d", "a."], ["a", "b.a", "ab.c"]),
        (">", ["a", "a.b", "a.b.c", "dlq"], []),
        ("*.>", ["a.b", "a.b.c"], ["a"]),
        ("*.*.>", ["a.b.c", "a.b.c.d"], ["a", "a.b"]),
        ("a..*", ["a..b"], ["a.b", "a.b.c"]),
    ],
)
def test_a_pattern_matches_level_by_level(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [
        topic for topic in [*matching, *others] if Pattern(pattern).matches(topic, usual_origin(topic))
    ] == matching


@pytest.mark.parametrize(
    ("pattern", "topic", "result"),
    [
        ("*", "a.dlq", False),
        ("a.*", "a.dlq", False),
        ("a.>", "a.b.dlq", False),
        (">", "a.dlq", False),
        ("*.*", "a.dlq", False),
        ("*.dlq", "a.dlq", True),
        ("a.*.dlq", "a.b.dlq", True),
        ("*.dlq", "a.b.dlq", False),
        ("a.dlq", "a.dlq", True),
        ("a.dlq.>", "a.dlq.b", True),
        ("a.dlq.>", "a.dlq.dlq", False),
    ],
)
def test_only_a_pattern_that_asks_for_dead_letters_gets_them(
    pattern: str, topic: str, result: bool
) -> None:
    assert Pattern(pattern).matches(topic, usual_origin(topic)) is result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("..", "nothing but dots"),
        ("a.>.b", "must be the last level"),
        (">.>", "must be the last level"),
        (">.a", "must be the last level"),
        ("a*b", r"a level 'a\*b'"),
        ("a.b*", r"a level 'b\*'"),
        ("**", r"a level '\*\*'"),
        ("a.*>", r"a level '\*>'"),
        ("a>", "a level 'a>'"),
        ("a.>>", "a level '>>'"),
        ("a b.*", "a level 'a b'"),
        ("a/*", "a level"),
        ("*.a\n", "a level"),
        ("*." * 130 + "a", "at most 249 characters, not 261"),
        (None, "is a str, not NoneType"),
        (b"a.*", "is a str, not bytes"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        Pattern(text)


@pytest.mark.parametrize("pattern", [">", "quiver.*", "quiver.>", "*.imports"])
def test_no_pattern_stands_for_what_imports_note(pattern: str) -> None:
    assert not Pattern(pattern).matches(IMPORTS_TOPIC, None)


def test_patterns_of_one_text_are_one() -> None:
    assert len({Pattern("a.*"), Pattern("a.*"), Pattern("a.>")}) == 2
    assert Pattern("a.*") != "a.*"
    assert repr(Pattern("a.*")) == "Pattern('a.*')"


LEVEL = st.sampled_from(["a", "b", "ab"])
WANTED = st.lists(LEVEL | st.just("*"), min_size=1, max_size=4)


@given(WANTED, st.booleans(), st.lists(LEVEL, min_size=1, max_size=6))
def test_a_pattern_agrees_with_a_walk_from_the_left(
    wanted: list[str], rest: bool, levels: list[str]
) -> None:
    def walk(wanted: list[str], levels: list[str]) -> bool:
        if not wanted:
            return len(levels) >= 1 if rest else not levels
        return bool(levels) and fnmatchcase(levels[0], wanted[0]) and walk(wanted[1:], levels[1:])

    pattern = Pattern(".".join([*wanted, ">"] if rest else wanted))
    assert pattern.matches(".".join(levels), None) is walk(wanted, levels)


def test_no_pattern_takes_long() -> None:
    pattern = Pattern("*." * 100 + "b")
    start = time.process_time()
    assert not pattern.matches("a." * 100 + "a", None)
    # A search that tried every way to split the name would not come back at all.
    assert time.process_time() - start < 1
