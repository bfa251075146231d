"""How many files and connections the operating system lets this process have open."""

import logging
import resource

logger = logging.getLogger(__name__)

# For the logs of topics, besides the connections.
_FILES = 4096


def allow_open_files(connections: int) -> None:
    """Ask for as many as that many connections need, and warn when there are fewer to have."""
    wanted = connections + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning(
            "%d open files are allowed, and %d connections may need %d: raise the limit (`ulimit -n`)"
            " or lower server.connections_max",
            allowed,
            connections,
            wanted,
        )
