"""Which tables a statement names, without understanding the rest of it.

A name too many costs a moment; a queue with a thousand topics must not cost a thousand.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from quivermq.errors import InvalidRequest

# A name in backticks, texts and comments, and whatever may be the name of a topic.
_TOKEN = re.compile(
    r"""`(?P<quoted>(?:[^`]|``)*)`
    |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"
    |--[^\n]*|/\*.*?\*/
    |(?P<bare>[A-Za-z0-9_](?:[A-Za-z0-9_.]|-(?!-))*)""",
    re.DOTALL | re.VERBOSE,
)
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEFORE_A_TABLE = {"from", "join"}
_QUERIES = ("select", "with", "values", "from", "table", "show", "describe", "desc", "explain")
_BEHIND_INSERT = {"into", "overwrite"}


def check_is_query(statement: str) -> None:
    """Raise InvalidRequest for a statement that is more than a question."""
    words = [word.casefold() for word in _bare_words(statement)]
    first = words[0] if words else ""
    # WITH and FROM may lead to an INSERT.
    inserts = any(word == "insert" and after in _BEHIND_INSERT for word, after in pairwise(words))
    if first not in _QUERIES or inserts:
        begin = first.upper() or "an empty statement"
        raise InvalidRequest(
            f"{'INSERT' if inserts else begin} is no query: a statement only asks, with SELECT, WITH,"
            " VALUES, SHOW, DESCRIBE or EXPLAIN; `quiver pipeline run` writes"
        )


def named_tables(statement: str, names: Iterable[str]) -> list[str]:
    """Those of the names that the statement may mean. Spark does not tell capitals from others."""
    words = set(_words(statement))
    folded = {word.casefold() for word in words}
    meant: dict[str, str] = {}
    for name in sorted(names):
        if name.casefold() not in folded:
            continue
        other = meant.setdefault(name.casefold(), name)
        if other != name and {other, name} <= words:
            raise InvalidRequest(f"{other} and {name} differ only in capitals, which is not enough in SQL")
        if name in words:
            meant[name.casefold()] = name
    return sorted(meant.values())


def with_quotes(statement: str, names: Iterable[str]) -> str:
    """The statement with backticks around names such as orders.dlq, where a table has to stand."""
    known = {name.casefold() for name in names}
    parts, done, before = [], 0, ""
    for match in _TOKEN.finditer(statement):
        word = match["bare"]
        if word and before in _BEFORE_A_TABLE and word.casefold() in known:
            parts += [statement[done : match.start()], quoted(word)]
            done = match.end()
        before = (word or "").casefold()
    return "".join([*parts, statement[done:]])


def quoted(name: str) -> str:
    """A name as it has to be written in SQL."""
    return name if _NEEDS_NO_QUOTES.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _bare_words(statement: str) -> Iterator[str]:
    return (match["bare"] for match in _TOKEN.finditer(statement) if match["bare"])


def _words(statement: str) -> Iterator[str]:
    for match in _TOKEN.finditer(statement):
        if match["quoted"] is not None:
            yield match["quoted"].replace("``", "`")
        elif match["bare"]:
            yield match["bare"]
