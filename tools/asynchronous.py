"""Makes the asynchronous surface out of the synchronous one: `python tools/asynchronous.py [--check]`.

`Queue`, `Connection` and the protocols of a backend are written once, for threads. What asyncio needs is
the same text with `async` and `await` in it, and this puts them there: a call is awaited when it goes to
the backend, settles a delivery, or is of a function that awaits something itself.
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "quivermq"
# What is made, and from what.
MODULES = {
    "backend.py": "aio/backend.py",
    "queue/queue.py": "aio/queue.py",
    "queue/connection.py": "aio/connection.py",
}
NOTE = "# Made by tools/asynchronous.py from {source}: change that, and run `make asynchronous`.\n\n"

# The names that asyncio has others for, and the modules they are in.
NAMES = {
    "AbstractContextManager": ("contextlib", "AbstractAsyncContextManager"),
    "contextmanager": ("contextlib", "asynccontextmanager"),
    "Generator": ("collections.abc", "AsyncGenerator"),
    "Backend": ("quivermq.aio.backend", "AsyncBackend"),
    "QueueBackend": ("quivermq.aio.backend", "AsyncQueueBackend"),
    "Connection": ("quivermq.aio.connection", "AsyncConnection"),
    "Queue": ("quivermq.aio.queue", "AsyncQueue"),
    "Renewer": ("quivermq.aio.renewing", "AsyncRenewer"),
    "Stream": ("quivermq.aio.streaming", "AsyncStream"),
    "Streams": ("quivermq.aio.streaming", "AsyncStreams"),
    "Delivery": ("quivermq.client.asynchronous.delivery", "AsyncDelivery"),
    "RemoteConsumer": ("quivermq.client.asynchronous.consumer", "AsyncConsumer"),
    "RemoteProducer": ("quivermq.client.asynchronous.producer", "AsyncProducer"),
    "finish": ("quivermq.aio.finishing", "finish"),
    "close_all": ("quivermq.aio.finishing", "close_all"),
    "log_unreleased": ("quivermq.aio.finishing", "log_unreleased"),
    "__enter__": ("", "__aenter__"),
    "__exit__": ("", "__aexit__"),
}
# What docstrings say of threads. What is awaited belongs to an event loop.
WORDS = {
    "for a `with` block": "for an `async with` block",
    "use it in a `with`. Thread-safe.": "use it in an `async with`.",
}
# Of a backend these are answered at once; threads alone need the other ones.
AT_ONCE = {"check_open", "clock", "consumer", "name", "queue"}
FOR_THREADS = {"directory", "frames", "interrupt", "patient", "resume", "scheduler"}
SETTLING = {"ack", "nack", "release", "reject", "extend"}
AWAITED_FUNCTIONS = {"finish", "close_all"}

Function = ast.FunctionDef
Edit = tuple[int, int, str]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="only say whether everything is up to date")
    is_check = arguments.parse_args().check
    stale = []
    for source, target in MODULES.items():
        made = formatted(NOTE.format(source=source) + asynchronous((SOURCE / source).read_text()))
        if (SOURCE / target).exists() and (SOURCE / target).read_text() == made:
            continue
        stale.append(target)
        if not is_check:
            (SOURCE / target).write_text(made)
    for target in stale:
        print(f"{target} {'is not what its source says: run `make asynchronous`' if is_check else 'made'}")
    return 1 if is_check and stale else 0


def formatted(text: str) -> str:
    """As ruff has it, imports sorted."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in (
        ["check", "--select", "I,F401", "--fix-only", "--quiet"],
        ["format", "--quiet"],
    ):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", "made.py", "-"],
            input=text, capture_output=True, text=True, check=True, cwd=SOURCE.parents[1],
        )  # fmt: skip
        text = done.stdout
    return text


def asynchronous(text: str) -> str:
    """The text of a module with `async` and `await` where they belong."""
    return Translation(text).made()


class Translation:
    """One module. Edits are noted as positions in its text, and made at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tree = ast.parse(text)
        self._edits: list[Edit] = []
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line.encode()))
        self._starts = starts
        self._parents = {
            child: parent for parent in ast.walk(self._tree) for child in ast.iter_child_nodes(parent)
        }
        self._functions = [node for node in ast.walk(self._tree) if isinstance(node, Function)]
        self._awaiting = self._find_awaiting()

    def made(self) -> str:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and self._is_awaited(node):
                self._await(node)
            elif isinstance(node, Function) and self._is_async(node):
                self._insert(self._at(node.lineno, node.col_offset), "async ")
            elif isinstance(node, ast.ImportFrom):
                self._import(node)
        for function in self._functions:
            if function.name in FOR_THREADS and self._class_of(function) == "Backend":
                self._remove(function)
            elif self._is_close(function):
                self._remove(function.body[0])
                self._remove(function.body[1])
        removed = [(start, end) for start, end, new in self._edits if end > start and not new]
        data = self._text.encode()
        for start, end, new in sorted(self._edits, reverse=True):
            # Nothing has to be changed in what goes.
            if not new or not any(first <= start < last for first, last in removed):
                data = data[:start] + new.encode() + data[end:]
        return _renamed(data.decode())

    def _is_close(self, function: Function) -> bool:
        """In a signal handler nothing is awaited: the part of closing that is for those goes."""
        return function.name == "_close" and isinstance(function.body[0], ast.If)

    # Which functions await something.

    def _find_awaiting(self) -> set[str]:
        found: set[str] = set()
        while True:
            names = {
                function.name
                for function in self._functions
                if any(
                    isinstance(node, ast.Call) and self._is_awaited_in(node, found)
                    for node in ast.walk(function)
                )
                and not self._is_generator(function)
            }
            if names == found:
                return found
            found = names

    def _is_awaited(self, call: ast.Call) -> bool:
        return self._is_awaited_in(call, self._awaiting)

    def _is_awaited_in(self, call: ast.Call, awaiting: set[str]) -> bool:
        function = call.func
        if isinstance(function, ast.Name):
            return function.id in AWAITED_FUNCTIONS
        if not isinstance(function, ast.Attribute):
            return False
        owner, name = ast.unparse(function.value), function.attr
        if owner in ("self.backend", "self._backend"):
            return name not in AT_ONCE | FOR_THREADS
        if owner == "self":
            return name in awaiting
        return owner == "message" and name in SETTLING

    def _is_async(self, function: Function) -> bool:
        owner = self._class_of(function)
        if owner in ("Backend", "QueueBackend"):
            return function.name not in AT_ONCE
        if function.name in ("__enter__", "__exit__"):
            return True
        return function.name in self._awaiting or self._is_generator(function)

    def _is_generator(self, function: Function) -> bool:
        return any(isinstance(node, ast.Yield) for node in ast.walk(function))

    def _class_of(self, node: ast.AST) -> str | None:
        parent = self._parents.get(node)
        return parent.name if isinstance(parent, ast.ClassDef) else None

    # Edits.

    def _await(self, call: ast.Call) -> None:
        start, end = self._at(call.lineno, call.col_offset), self._end(call)
        # Only what takes less room than a call binds closer than `await`.
        if isinstance(self._parents[call], ast.Attribute | ast.Subscript | ast.Call):
            parent = self._parents[call]
            if not isinstance(parent, ast.Call) or parent.func is call:
                self._insert(start, "(await ")
                self._insert(end, ")")
                return
        self._insert(start, "await ")

    def _import(self, node: ast.ImportFrom) -> None:
        """Names that asyncio has others for come from elsewhere."""
        moved = [alias.name for alias in node.names if alias.name in NAMES and NAMES[alias.name][0]]
        if not moved:
            return
        kept = [alias for alias in node.names if alias.name not in moved]
        lines = [f"from {node.module} import {', '.join(map(ast.unparse, kept))}"] if kept else []
        lines += [f"from {NAMES[name][0]} import {name}" for name in moved]
        if node.module == "collections.abc":
            lines.append("from collections.abc import AsyncIterator")
        self._edits.append((self._at(node.lineno, node.col_offset), self._end(node), "\n".join(lines)))

    def _remove(self, node: ast.stmt) -> None:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        assert node.end_lineno is not None
        self._edits.append((self._starts[first - 1], self._starts[node.end_lineno], ""))

    def _insert(self, position: int, text: str) -> None:
        self._edits.append((position, position, text))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.end_lineno, node.end_col_offset)


def _renamed(text: str) -> str:
    """The text with the names that asyncio has."""
    # What a generator of tasks is sent is nothing, and it returns nothing.
    text = re.sub(r"\bGenerator\[(\w+), None, None\]", r"Generator[\1, None]", text)
    text = re.sub(r"(def _processing[^\n]*-> )Iterator\[", r"\1AsyncIterator[", text)
    for name, (_, other) in NAMES.items():
        text = re.sub(rf"(?<![\w.`\"]){name}(?![\w`])", other, text)
        text = re.sub(rf"(?<=`){name}(?=[.`])", other, text)
    for words, others in WORDS.items():
        text = text.replace(words, others)
    return text


if __name__ == "__main__":
    sys.exit(main())
