"""Where the archive is: what was moved out of the logs and is read as if it had not been."""

from quivermq.server.broker import Broker
from quivermq.server.http import Request, Response, json_response
from quivermq.server.routing import Route
from quivermq.server.shapes import ArchiveIn, ArchiveOut


async def show(broker: Broker, _: Request) -> Response:
    """The directory of the archive."""
    directory = await broker.run(broker.engine.archive.look)
    return json_response(ArchiveOut(None if directory is None else str(directory)))


async def use(broker: Broker, request: Request, body: ArchiveIn) -> Response:
    """Name the directory of the archive, or none."""
    await broker.run(broker.engine.use_archive, body.directory)
    return await show(broker, request)


ROUTES: list[Route] = [
    Route(
        "GET",
        "/v1/archive",
        show,
        summary="Where the archive is",
        tag="operations",
        returns={200: ArchiveOut},
    ),
    Route(
        "POST",
        "/v1/archive",
        use,
        summary="Name the archive, a directory that the broker can read",
        tag="operations",
        body=ArchiveIn,
        returns={200: ArchiveOut},
        errors=(404,),
    ),
]
