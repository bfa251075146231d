"""What makes a command of a function: the options that most of them have, and printing its result."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

from quivermq.cli.connecting import Place
from quivermq.cli.options import DataOption, JsonOption, ServerOption
from quivermq.cli.output import CommandResult
from quivermq.queue.connection import Connection

T = TypeVar("T")
Returning = Callable[..., CommandResult]
Command = Callable[..., None]
Opening = Callable[[Place | None, str | None], AbstractContextManager[Connection]]


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_DATA, _SERVER = _option("data", DataOption, None), _option("server", ServerOption, None)
_JSON = _option("as_json", JsonOption, False)


def answering(function: Returning) -> Command:
    """A command that has `--json` as its last option, and prints what the function returns."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def command(*, as_json: bool, **given: Any) -> None:
        if "as_json" in parameters:
            given["as_json"] = as_json
        function(**given).print(as_json=as_json)

    others = [each for name, each in parameters.items() if name != "as_json"]
    return _with_parameters(command, [*others, _JSON])


def on_queue(opened: Opening) -> Callable[[Returning], Command]:
    """The same, for a function of a queue: `--data` and `--server` stand where it has its parameter `mq`.

    `opened` opens the queue that they name. It is closed before anything is printed.
    """

    def decorate(function: Returning) -> Command:
        @wraps(function)
        def run(*, data: Place | None, server: str | None, **given: Any) -> CommandResult:
            with opened(data, server) as mq:
                return function(mq=mq, **given)

        parameters: list[inspect.Parameter] = []
        for name, each in inspect.signature(function).parameters.items():
            parameters += [_DATA, _SERVER] if name == "mq" else [each]
        return answering(_with_parameters(run, parameters))

    return decorate


def _with_parameters(function: Callable[..., T], parameters: list[inspect.Parameter]) -> Callable[..., T]:
    """Let typer see these parameters, all of which it gives by name."""
    by_name = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    function.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    return function
