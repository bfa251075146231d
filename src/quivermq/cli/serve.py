"""`quiver serve`: be the broker of a directory until told to stop."""

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quivermq.cli.output import JsonOption, print_line_of_json
from quivermq.cli.place import OwnDataOption, settings_here, with_advice
from quivermq.engine import Engine, open_engine
from quivermq.errors import DirectoryLocked, QuiverError

if TYPE_CHECKING:
    from quivermq.server.run import Server

# What `pip install quivermq[server]` brings.
_PARTS = {"httptools", "msgspec", "uvloop"}


class LogShape(StrEnum):
    """How the log is written."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """What is worth a line in the log."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def command(
    data: OwnDataOption,
    host: Annotated[
        str, typer.Option(help="The address to listen on. One that others can reach needs a key first.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0 takes one that is free.", min=0, max=65535)
    ] = 7070,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A certificate in PEM, with its chain: then it serves https.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The private key of the certificate, if it is in another file.")
    ] = None,
    log: Annotated[
        LogShape, typer.Option(help="How the log on standard error is written.")
    ] = LogShape.text,
    log_level: Annotated[LogLevel, typer.Option(help="What is worth a line in the log.")] = LogLevel.info,
    config: Annotated[
        Path | None,
        typer.Option(help="The settings file. Without it, quiver.toml here, if there is one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a directory over HTTP. It is created when it is new.

    On SIGTERM or Ctrl-C it takes no more calls, finishes those that have begun, and closes the directory; a
    second one cuts that short. With `--json`, where it listens is told as a line of JSON once it does.
    """
    check_parts()
    from quivermq.server.logs import configure_logging
    from quivermq.server.run import serve

    settings = settings_here(config)
    configure_logging(as_json=log is LogShape.json, level=logging.getLevelNamesMapping()[log_level.upper()])
    try:
        engine = open_engine(data, settings)
    except DirectoryLocked as error:
        raise with_advice(error) from None
    serve(
        engine,
        settings.server,
        host=host,
        port=port,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        ready=lambda server: _tell(server, engine, as_json=as_json),
    )


def check_parts() -> None:
    """Raise QuiverError unless everything that a broker needs is installed."""
    try:
        import quivermq.server.run  # noqa: F401 - Only whether it can be.
    except ModuleNotFoundError as error:
        if error.name not in _PARTS:
            raise
        raise QuiverError("install the broker: pip install 'quivermq[server]'") from None


def _tell(server: "Server", engine: Engine, *, as_json: bool) -> None:
    places = {
        "url": server.url,
        "docs": f"{server.url}/docs",
        "metrics": f"{server.url}/metrics",
        "data": str(engine.path.resolve()),
    }
    if as_json:
        print_line_of_json(places)
    else:
        print(f"Quiver serves {places['data']}")
        print(f"  dashboard {places['url']}")
        print(f"  API       {places['docs']}")
        print(f"  metrics   {places['metrics']}")
        print("Ctrl-C ends it.")
    # Whoever waits for this may read from a pipe, and the next line comes never.
    sys.stdout.flush()
