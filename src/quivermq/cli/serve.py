"""`quiver serve`: be the broker of a directory or a bucket until told to stop."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from quivermq.cli.connecting import loaded_here, named_data, served_data, with_advice
from quivermq.cli.options import ConfigOption, DataOption, JsonOption
from quivermq.cli.output import print_line_of_json
from quivermq.cli.serve_cluster import serve_in_cluster
from quivermq.engine import BucketEngine, Engine, open_at
from quivermq.errors import DirectoryLocked, InvalidRequest, QuiverError
from quivermq.settings import ServerSettings
from quivermq.settings.load import SETTINGS

if TYPE_CHECKING:
    from quivermq.server.run import Server

# What `pip install quivermq[server]` brings.
_PARTS = {"httptools", "msgspec", "uvloop"}


def _help(name: str) -> str:
    setting = SETTINGS[f"server.{name}"]
    return f"{setting.doc} The setting `server.{name}`, by default {setting.text(setting.default)}."


def _cluster_help(name: str) -> str:
    return f"{SETTINGS[f'cluster.{name}'].doc} The setting `cluster.{name}`."


def command(
    data: DataOption = None,
    cluster: Annotated[
        str | None, Option(help=f"Serve shards of a cluster instead. {_cluster_help('etcd')}")
    ] = None,
    bucket: Annotated[str | None, Option(help=_cluster_help("bucket"))] = None,
    cache: Annotated[
        Path | None, Option(help=f"{SETTINGS['bucket.cache'].doc} The setting `bucket.cache`.")
    ] = None,
    advertise: Annotated[str | None, Option(help=_cluster_help("advertise"))] = None,
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
    """Serve a directory or a bucket over HTTP, or with `--cluster` shards of a cluster. A new one is made.

    An option stands for a setting of the file, and counts more. On SIGTERM or Ctrl-C it takes no more
    calls, finishes those that have begun, and closes the queue; a second one cuts that short. With
    `--json`, where it listens is told as a line of JSON once it does.

    A bucket is taken over from whoever has it open. When somebody else takes it over, the broker ends with
    exit code 4: let nothing start it again by itself then, or the two take turns.
    """
    check_parts()
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
    in_cluster = {"etcd": cluster, "bucket": bucket, "advertise": advertise}
    given = {
        **{f"server.{name}": value for name, value in flags.items() if value is not None},
        **{f"cluster.{name}": value for name, value in in_cluster.items() if value is not None},
        **({} if cache is None else {"bucket.cache": cache}),
    }
    settings = loaded_here(config, given).settings
    server = settings.server
    if settings.cluster.etcd:
        if data is not None:
            raise InvalidRequest(
                "--data is one queue and --cluster shards of many machines: give one of them"
            )
        _log(server)
        serve_in_cluster(settings, as_json=as_json)
        return
    try:
        engine = open_at(served_data(settings), settings)
    except DirectoryLocked as error:
        raise with_advice(error) from None
    _log(server)
    serve(engine, server, ready=lambda server: _print_addresses(server, engine, as_json=as_json))


def _log(server: ServerSettings) -> None:
    from quivermq.server.process import configure_logging

    level = logging.getLevelNamesMapping()[server.log_level.upper()]
    configure_logging(as_json=server.log == "json", level=level)


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
