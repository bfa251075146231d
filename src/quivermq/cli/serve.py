"""`quiver serve`: be the broker of a directory until told to stop."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from quivermq.cli.connecting import loaded_here, named_data, served_data, with_advice
from quivermq.cli.options import ConfigOption, DataOption, JsonOption
from quivermq.cli.output import print_line_of_json
from quivermq.engine import BucketEngine, Engine, open_at
from quivermq.errors import DirectoryLocked, QuiverError
from quivermq.settings.load import SETTINGS

if TYPE_CHECKING:
    from quivermq.server.run import Server

# What `pip install quivermq[server]` brings.
_PARTS = {"httptools", "msgspec", "uvloop"}


def _help(name: str) -> str:
    setting = SETTINGS[f"server.{name}"]
    return f"{setting.doc} The setting `server.{name}`, by default {setting.text(setting.default)}."


def command(
    data: DataOption = None,
    host: Annotated[str | None, Option(help=_help("host"))] = None,
    port: Annotated[int | None, Option(help=_help("port"), min=0, max=65535)] = None,
    tls_certificate: Annotated[Path | None, Option(help=_help("tls_certificate"))] = None,
    tls_key: Annotated[Path | None, Option(help=_help("tls_key"))] = None,
    keys: Annotated[Path | None, Option(help=_help("keys"))] = None,
    log: Annotated[Literal["text", "json"] | None, Option(help=_help("log"))] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, Option(help=_help("log_level"))
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a directory over HTTP. It is created when it is new.

    An option stands for a setting of the file, and counts more. On SIGTERM or Ctrl-C it takes no more
    calls, finishes those that have begun, and closes the directory; a second one cuts that short. With
    `--json`, where it listens is told as a line of JSON once it does.
    """
    check_parts()
    from quivermq.server.process import configure_logging
    from quivermq.server.run import serve

    flags = {
        "data": data or named_data(),
        "host": host,
        "port": port,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "keys": keys,
        "log": log,
        "log_level": log_level,
    }
    given = {f"server.{name}": value for name, value in flags.items() if value is not None}
    settings = loaded_here(config, given).settings
    server = settings.server
    try:
        engine = open_at(served_data(settings), settings)
    except DirectoryLocked as error:
        raise with_advice(error) from None
    configure_logging(
        as_json=server.log == "json", level=logging.getLevelNamesMapping()[server.log_level.upper()]
    )
    serve(engine, server, ready=lambda server: _print_addresses(server, engine, as_json=as_json))


def check_parts() -> None:
    """Raise QuiverError unless everything that a broker needs is installed."""
    try:
        import quivermq.server.run  # noqa: F401 - Only whether it can be.
    except ModuleNotFoundError as error:
        if error.name not in _PARTS:
            raise
        raise QuiverError("install the broker: pip install 'quivermq[server]'") from None


def _print_addresses(server: "Server", engine: Engine, *, as_json: bool) -> None:
    served = engine.name if isinstance(engine, BucketEngine) else str(engine.path.resolve())
    addresses = {
        "url": server.url,
        "docs": f"{server.url}/docs",
        "metrics": f"{server.url}/metrics",
        "data": served,
    }
    if as_json:
        print_line_of_json(addresses)
    else:
        print(f"Quiver serves {addresses['data']}")
        print(f"  dashboard {addresses['url']}")
        print(f"  API       {addresses['docs']}")
        print(f"  metrics   {addresses['metrics']}")
        print("Ctrl-C ends it.")
    # Whoever waits for this may read from a pipe, and the next line comes never.
    sys.stdout.flush()
