"""What is told over the network says nothing of where things lie on this machine.

Errors and problems name files, which helps whoever has the machine. Over HTTP a file of the queue is
named by where it lies below the data directory, and any other by its last name alone.
"""

import re
from pathlib import Path

from quivermq.disk import real_path
from quivermq.errors import QuiverError


class Hiding:
    """Takes the paths of this machine out of texts."""

    def __init__(self, root: Path) -> None:
        self._roots = sorted({root.absolute(), real_path(root), root}, key=lambda path: -len(str(path)))
        names = "|".join(re.escape(str(path)) for path in self._roots)
        # Not in the middle of another name: a data directory may be called "data".
        self._below = re.compile(rf"(?<![\w./-])(?:{names})/")
        self._itself = re.compile(rf"(?<![\w./-])(?:{names})(?![\w-])")

    def text(self, text: str) -> str:
        """The same, without the place of the data directory."""
        return self._itself.sub("the data directory", self._below.sub("", text))

    def path(self, path: Path) -> str:
        """What a path may be called."""
        for root in self._roots:
            if path.is_relative_to(root):
                return str(path.relative_to(root))
        return path.name

    def message(self, error: QuiverError) -> str:
        """What an error says."""
        text, path = str(error), getattr(error, "path", None)
        if isinstance(path, Path):
            shown = self.path(path)
            text = text.replace(str(path), "the data directory" if shown == "." else shown)
        return self.text(text)
