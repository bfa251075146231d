import json
import sys
from typing import Annotated

import pytest
import typer

import quivermq.cli.app
from quivermq.cli import main
from quivermq.cli.options import JsonOption
from quivermq.errors import Closing


def run(monkeypatch: pytest.MonkeyPatch, error: BaseException, *arguments: str) -> int:
    """The exit code of a command that raises `error`."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fail(
        words: Annotated[list[str] | None, typer.Argument()] = None, as_json: JsonOption = False
    ) -> None:
        raise error

    monkeypatch.setattr(quivermq.cli.app, "app", app)
    monkeypatch.setattr(sys, "argv", ["quiver", *arguments])
    try:
        return main()
    except SystemExit as end:
        return int(end.code or 0)


def test_an_error_is_one_line_and_the_exit_code_of_its_class(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, Closing("try later")) == Closing.exit_code
    assert capsys.readouterr() == ("", "error: try later\n")


def test_an_error_is_json_for_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, Closing("try later"), "--json") == Closing.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {"error": {"code": "closing", "message": "try later", "retryable": True}}


def test_json_behind_the_end_of_options_is_only_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, Closing("try later"), "--", "--json") == Closing.exit_code
    assert capsys.readouterr().err == "error: try later\n"


def test_an_interrupt_exits_as_the_shell_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, KeyboardInterrupt()) == 130


def test_a_bug_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, ZeroDivisionError())
