"""The fenced blocks of a page, and the comments that say how they are meant."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN = ("python", "sh", "console")
DATA = ("json", "toml", "yaml")
SHOWN = ("text",)

_PART = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^(?P<indent> *)(?P<fence>```+)(?P<language>[^\s`]*)[^\n`]*\n(?P<text>.*?)^(?P=indent)(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"^ *<!-- (not run|file|output)(?:: *(.*?))? *-->\s*\Z", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, or a comment with commands that are not shown."""

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    """`not run`, `file` or `output`, if there was such a comment before it, and `setup` for that itself."""
    said: str = ""
    """Why it is not run, or the name of the file."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.mark == "setup" or (self.mark == "" and self.language in RUN)

    @property
    def is_accounted_for(self) -> bool:
        """Whether it runs, is data, is only text, or says why it does nothing of that."""
        if self.mark == "not run":
            return bool(self.said)
        if self.mark == "output":
            return self.language == "text"
        return self.mark == "file" or self.runs or self.language in (*DATA, *SHOWN)


def page_name(page: Path) -> str:
    """A page as people name it."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return list(_blocks(page.read_text(encoding="utf-8"), page_name(page)))


def _blocks(text: str, page: str) -> Iterator[Block]:
    end = 0
    for found in _PART.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["setup"] is not None:
            yield Block(page, line, "sh", found["setup"], "setup")
        else:
            mark = _MARK.search(text, end, found.start())
            kind, said = (mark[1], mark[2] or "") if mark else ("", "")
            indent = found["indent"]
            content = re.sub(rf"^{indent}", "", found["text"], flags=re.MULTILINE)
            yield Block(page, line, found["language"], content, kind, said)
        end = found.end()


def prose_of(page: Path) -> str:
    """A page without its blocks."""
    return _PART.sub("", page.read_text(encoding="utf-8"))


def needs_spark(blocks: list[Block]) -> bool:
    """Whether some of them start Spark: such pages are tested beside the pipeline."""
    words = ("quivermq.spark", "quiver pipeline", "pyspark")
    return any(block.runs and any(word in block.text for word in words) for block in blocks)
