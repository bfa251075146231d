"""docs/reference/names.md: every public name with its signature and its docstring, out of the source."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from reference_tables import table

import quivermq
import quivermq.aio
import quivermq.exporting
import quivermq.importers
import quivermq.spark
from quivermq.client.consuming.consumer import RemoteConsumer
from quivermq.client.producing.batch import Sent
from quivermq.client.producing.producer import RemoteProducer
from quivermq.engine.activity import GroupActivity, Problem, TopicActivity
from quivermq.errors import QuiverError
from quivermq.model.messages import Timeline
from quivermq.model.stats import LogFinding
from quivermq.settings import ServerSettings
from quivermq.settings.load import LoadedSettings

# What calls return without being a name of the package itself.
_RETURNED = (
    RemoteProducer,
    Sent,
    RemoteConsumer,
    Timeline,
    TopicActivity,
    GroupActivity,
    Problem,
    LogFinding,
    LoadedSettings,
    ServerSettings,
)

# Public inside of the package only: the broker, the jobs and the shells call them.
NOT_FOR_USERS = {
    "AsyncConsumer": {"end"},
    "AsyncDelivery": {"held"},
    "AsyncProducer": {"begin"},
    "AsyncQueue": {"finish_with", "lease_s", "release_quietly"},
    "DataDirectory": {"remove", "release"},
    "Log": {"append_batches", "roll", "configure", "replace", "is_closed", "failure"},
    "LogFollower": {"check_range"},
    "Queue": {"finish_with", "lease_s", "release_quietly"},
}  # fmt: skip
_SETTINGS = (quivermq.EngineSettings, quivermq.StorageSettings, quivermq.TopicSettings, ServerSettings)


def names_page() -> str:
    """The whole page."""
    errors = ", ".join(f"`{name}`" for name in quivermq.__all__ if _is_error(getattr(quivermq, name)))
    return f"""\
# Every name

All public names with their signatures, made from the source. [Python](python.md) and [Client](client.md)
say what they are for, and how they go together.

## quivermq

{_section(quivermq)}
### Errors

{errors}: see [Errors](errors.md).

## What calls return besides

{_joined(_described(each.__name__, each) for each in _RETURNED)}
## quivermq.aio

{_section(quivermq.aio)}
## quivermq.spark

{_section(quivermq.spark)}
## quivermq.importers

{_section(quivermq.importers)}
## quivermq.exporting

{_section(quivermq.exporting)}"""


def _section(module: Any) -> str:
    names = [name for name in module.__all__ if not name.startswith("__")]
    found = [(name, getattr(module, name)) for name in names]
    # Functions come first: with them one begins.
    functions = [each for each in found if inspect.isfunction(each[1])]
    classes = [each for each in found if inspect.isclass(each[1]) and not _is_error(each[1])]
    return _joined(_described(name, value) for name, value in [*functions, *classes])


def _joined(parts: Iterator[str]) -> str:
    return "\n".join(parts)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, QuiverError)


def _described(name: str, value: Any) -> str:
    doc = _doc(value)
    if not inspect.isclass(value):
        return f"### {name}\n\n`{_signature(name, value)}`\n\n{doc}\n"
    lines = [f"### {name}", doc]
    fields = list(_fields(value))
    if fields and value in _SETTINGS:
        lines.append(f"{', '.join(f'`{name}`' for name, _, _ in fields)}: see [Settings](settings.md).")
    elif fields:
        lines.append(_told(fields))
    if members := list(_members(value)):
        # A list and no table, because a signature may be longer than a column is wide.
        lines.append(
            "\n\n".join(
                f"-   `{shown}`<br>\n    {doc}".removesuffix("<br>\n    ") for shown, doc in members
            )
        )
    return "\n\n".join(lines) + "\n"


def _told(fields: list[tuple[str, str, str]]) -> str:
    """Fields as a table where there is something to say about them, otherwise in a line."""
    if not any(text for _, _, text in fields):
        return f"Fields: {', '.join(f'`{name}: {kind}`' for name, kind, _ in fields)}."
    rows = ((f"`{name}`", f"`{_cell(kind)}`", text) for name, kind, text in fields)
    return table(("field", "is", ""), rows).rstrip()


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a dataclass or a named tuple: name, type and docstring, as in the source."""
    if not (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields")):
        return
    body = _class_node(kind).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if not name.startswith("_"):
            default = (
                f" = {ast.unparse(statement.value)}" if isinstance(statement.value, ast.Constant) else ""
            )
            yield name, f"{_unquoted(ast.unparse(statement.annotation))}{default}", _string(following)


def _string(statement: ast.stmt | None) -> str:
    is_text = (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
    return _cell(inspect.cleandoc(statement.value.value)) if is_text else ""  # type: ignore[union-attr]


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Properties and methods, those of base classes in the package included."""
    left_out = NOT_FOR_USERS.get(kind.__name__, set())
    seen: set[str] = set()
    for base in (each for each in kind.__mro__ if each.__module__.startswith("quivermq")):
        for name, value in vars(base).items():
            if name.startswith("_") or name in left_out or name in seen:
                continue
            if isinstance(value, property):
                seen.add(name)
                yield _property(name, value), _indented(_doc(value))
            elif inspect.isfunction(value):
                seen.add(name)
                yield _signature(name, value), _indented(_doc(value))


def _property(name: str, value: property) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(value.fget))).body[0]  # type: ignore[arg-type]
    assert isinstance(node, ast.FunctionDef)
    return f"{name}: {_unquoted(ast.unparse(node.returns))}" if node.returns is not None else name


def _signature(name: str, value: Any) -> str:
    """As in the source, but that a default which is a constant of a module is told by its value."""
    value = inspect.unwrap(value)
    node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    annotations = {
        argument.arg: ast.unparse(argument.annotation)
        for argument in _arguments(node.args)
        if argument.annotation is not None
    }
    parts: list[str] = []
    was_keyword_only = False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not was_keyword_only:
            was_keyword_only = True
            if not any(part.startswith("*") for part in parts):
                parts.append("*")
        parts.append(_parameter(parameter, annotations.get(parameter.name)))
    returns = f" -> {_unquoted(ast.unparse(node.returns))}" if node.returns is not None else ""
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{prefix}{name}({', '.join(parts)}){returns}"


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    further = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *further]


def _parameter(parameter: inspect.Parameter, annotation: str | None) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    text = f"{stars}{parameter.name}"
    if annotation is not None:
        text += f": {_unquoted(annotation)}"
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    is_plain = default is None or isinstance(default, bool | int | float | str | bytes | tuple)
    return f"{text} = {default!r}" if is_plain else f"{text} = …"


def _class_node(kind: type) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def _unquoted(annotation: str) -> str:
    return re.sub(r"'([^']*)'", r"\1", annotation)


def _doc(value: Any) -> str:
    return inspect.cleandoc(getattr(value, "__doc__", None) or "")


def _indented(text: str) -> str:
    """A text that goes on in an item of a list."""
    return re.sub(r"\n(?=[^\n])", "\n    ", text)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
