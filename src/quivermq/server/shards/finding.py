"""Which shard a request is for: by its path, or by the topic that it names."""

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from quivermq.cluster.placement import shard_of
from quivermq.cluster.view import ClusterView
from quivermq.errors import InvalidRequest, NotFound
from quivermq.model.names import is_pattern
from quivermq.server.http import Request, Response, problem

SHARDS = "/shards/"
_TOPICS = "/v1/topics"
_BY_SEVERAL = "connect by the URLs of several brokers, such as http://a:7070,http://b:7070"


class ShardPath(NamedTuple):
    """A shard, and the path of the request there."""

    shard: int
    path: str


def shard_in_path(path: str, shards: int) -> ShardPath:
    """What a path below `/shards/` says. Raises NotFound for a shard that the cluster does not have."""
    number, slash, rest = path.removeprefix(SHARDS).partition("/")
    if not (number.isascii() and number.isdigit() and len(number) < 5 and int(number) < shards):
        raise NotFound(f"there is no shard {number[:20]!r}: the cluster has {shards}, the first one is 0")
    return ShardPath(int(number), slash + rest or "/")


def shard_by_topic(request: Request, view: ClusterView) -> ShardPath | Response:
    """Where a request goes that names one topic; why it goes nowhere, when it does not."""
    topic = _topic_of(request)
    if topic is None:
        return problem(
            501,
            "not_implemented",
            f"{request.path[:200]} of a whole cluster is not there yet: ask each shard, below /shards/0 and"
            " so on",
        )
    if is_pattern(topic):
        return problem(
            501,
            "not_implemented",
            f"a pattern may have topics on several shards: {_BY_SEVERAL}, or ask each shard",
        )
    if (wide := view.topics.get(topic.removesuffix(".dlq"))) is not None:
        paths = ", ".join(f"{SHARDS}{shard}" for shard in wide)
        return problem(
            501,
            "not_implemented",
            f"{topic[:200]} is on several shards: {_BY_SEVERAL}, or ask each, below {paths}",
        )
    return ShardPath(shard_of(topic, view.shards), request.path)


def path_there(found: ShardPath) -> str:
    """The path at any broker that leads to the same."""
    return f"{SHARDS}{found.shard}{found.path}"


def _topic_of(request: Request) -> str | None:
    """The topic in the path, or in the body of the call that makes one."""
    if request.path.startswith(f"{_TOPICS}/"):
        return unquote(request.path[len(_TOPICS) + 1 :].partition("/")[0], errors="replace")
    if request.path == _TOPICS and request.method == "POST":
        return _name_in(request.body)
    return None


def _name_in(body: bytes) -> str:
    try:
        name = json.loads(body)["name"]
    except (ValueError, LookupError, TypeError, RecursionError):
        name = None
    if not isinstance(name, str):
        raise InvalidRequest('a topic needs a name: send {"name": …} and the settings beside it')
    return name


def quoted_location(url: str, request: Request, found: ShardPath) -> str:
    """The URL of a request at another broker."""
    query = f"?{request.query_string}" if request.query_string else ""
    return url + quote(path_there(found), safe="/%:@!$&'()*+,;=~-._") + query
