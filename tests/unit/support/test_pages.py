"""How the pages of the documentation are read."""

from pathlib import Path

import pytest
from support.pages import Block, blocks_of, needs_spark, prose_of
from support.pages.running import is_as_shown
from support.pages.script import steps_of

PAGE = """\
# A page

<!-- setup
echo hidden
-->

```python title="Ours"
print(1)
```

<!-- not run: their side -->

```python
import theirs
```

- in a list:

  ```sh
  echo [one](two)
  ```

<!-- file: a.toml -->

```toml
a = 1
```

```
nothing said
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_have_their_language_place_and_mark(page: Path) -> None:
    assert [(block.language, block.line, block.mark, block.said) for block in blocks_of(page)] == [
        ("sh", 3, "setup", ""),
        ("python", 7, "", ""),
        ("python", 13, "not run", "their side"),
        ("sh", 19, "", ""),
        ("toml", 25, "file", "a.toml"),
        ("", 29, "", ""),
    ]


def test_which_blocks_run_and_which_are_forgotten(page: Path) -> None:
    blocks = blocks_of(page)
    assert [block.runs for block in blocks] == [True, True, False, True, False, False]
    assert [block.is_accounted_for for block in blocks] == [True, True, True, True, True, False]


def test_a_block_in_a_list_loses_its_indent(page: Path) -> None:
    assert blocks_of(page)[3].text == "echo [one](two)\n"


def test_prose_is_what_is_left(page: Path) -> None:
    assert "two" not in prose_of(page)
    assert "in a list" in prose_of(page)


def test_leaving_a_block_out_needs_a_reason() -> None:
    assert not Block("page.md", 1, "python", "", "not run", "").is_accounted_for


def test_a_session_is_its_commands_and_what_they_print(tmp_path: Path) -> None:
    text = "$ echo a \\\n  b\na b\n$ true\n$ curl http://127.0.0.1:7070/\nhttp://127.0.0.1:7070/ has it\n"
    steps = list(steps_of([Block("page.md", 1, "console", text)], tmp_path, 9999))
    assert [step.expected for step in steps] == ["a b\n", None, "http://127.0.0.1:7070/ has it\n"]
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == [
        "echo a \\\n  b\n",
        "true\n",
        "curl http://127.0.0.1:9999/\n",
    ]


@pytest.mark.parametrize(
    ("text", "needed"),
    [("from quivermq.spark import sql", True), ("quiver pipeline sql 1", True), ("quiver put a b", False)],
)
def test_what_needs_spark(text: str, needed: bool) -> None:
    assert needs_spark([Block("page.md", 1, "sh", text)]) is needed
    assert not needs_spark([Block("page.md", 1, "sh", text, "not run", "why")])


@pytest.mark.parametrize(
    ("printed", "shown", "is_right"),
    [
        ("one\n", "one\n", True),
        ("one\n", "two\n", False),
        (" a   b \n\n", "a b", True),
        ("put 17 messages", "put … messages", True),
        ("put 17 messages\nand more", "put … messages", False),
        ("first\nsecond\nthird", "first\n…\nthird", True),
        ("──────\nx", "───\nx", True),
        ('{"a":[1,2]}', '{"a": [1,\n 2]}', True),
        ('{"a":1,"b":2}', '{"a": …, "b": 2}', True),
        ('{"a":1}', '{"a": 2}', False),
    ],
)
def test_what_is_printed_against_what_is_shown(printed: str, shown: str, is_right: bool) -> None:
    assert is_as_shown(printed, shown) is is_right
