"""The OpenAPI document against a broker that runs: what it promises is what is answered.

For every call requests are made up, right ones and wrong ones. The answers have to have the statuses,
content types, headers and shapes that the document says; right requests have to be accepted, wrong ones
refused.
"""

import os
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.generation.meta import CoveragePhaseData, CoverageScenario, FuzzingPhaseData
from schemathesis.specs.openapi.checks import negative_data_rejection
from support.broker import Served, serving

from quivermq.engine import engine_of
from quivermq.frame import encode
from quivermq.model.json import FRAME
from quivermq.queue.connection import Connection
from quivermq.server.openapi import openapi_document
from quivermq.server.routes import all_routes

pytestmark = pytest.mark.fault("hostile", "broker")

Case = schemathesis.Case[Any]

# Enough to find most of what a night of it finds, in a time that nobody minds.
EXAMPLES = int(os.environ.get("QUIVER_EXAMPLES", "5"))

TOPICS = ["orders", "events.eu"]
NAMES: dict[str, list[Any]] = {"topic": TOPICS, "group": ["billing", "default"], "partition": [0]}

# A stream of events never ends, so nobody could look at its answer: tests/unit/server/test_events.py does.
ENDLESS = "/v1/events"

# Right, and still refused: for what is in the queue.
ACCEPTED = ["2xx", "401", "403", "404", "409", "413", "416"]
REFUSED = ["400", "401", "403", "404", "405", "409", "413", "416"]
# Calls whose requests may be wrong in a way that no schema can say: settings that do not go together, a
# parameter that is for another content type, a receipt of another topic, an offset beside a timestamp, a
# group without its topic, a list of names of which one is too long.
INTRICATE = [
    "POST /v1/topics",
    "PATCH /v1/topics/{topic}",
    "POST /v1/topics/{topic}/messages",
    "GET /v1/topics/{topic}/partitions/{partition}/messages",
    "POST /v1/topics/{topic}/dedup_ids",
    "POST /v1/topics/{topic}/groups/{group}/seek",
    "POST /v1/topics/{topic}/groups/{group}/adopt",
    "POST /v1/topics/{topic}/groups/{group}/ack",
    "POST /v1/topics/{topic}/groups/{group}/nack",
    "POST /v1/topics/{topic}/groups/{group}/reject",
    "POST /v1/topics/{topic}/groups/{group}/extend",
    "POST /v1/topics/{topic}/groups/{group}/release",
    "POST /v1/groups/{group}/join",
    "GET /v1/groups/{group}/offsets",
    "GET /v1/history",
    "GET /v1/stats",
    "PUT /v1/groups/{group}/offsets",
    "PUT /v1/topics/{topic}/partitions/{partition}/segments/{base_offset}",
]
CONFIG = {
    "checks": {
        "positive_data_acceptance": {"expected-statuses": ACCEPTED},
        "negative_data_rejection": {"expected-statuses": REFUSED},
    },
    "operations": [
        {
            "include-name": INTRICATE,
            "checks": {"positive_data_acceptance": {"expected-statuses": [*ACCEPTED, "400"]}},
        }
    ],
}

# What stands before those that break a rule.
RIGHT = list(takewhile(CoverageScenario.VALUE_ABOVE_MAXIMUM.__ne__, CoverageScenario))

schema = schemathesis.openapi.from_dict(
    openapi_document(all_routes()), config=SchemathesisConfig.from_dict(CONFIG)
).exclude(path=ENDLESS)


@schemathesis.serializer(FRAME)
def frame_of(_: schemathesis.SerializationContext, value: object) -> bytes:
    """Whatever was made up, as the value of a message."""
    return bytes(encode([repr(value).encode()], timestamp=0))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("broker"), wait_ms_max=10) as served:
        yield served


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def prepare(engine: Connection) -> None:
    """Have something of everything, also when the last request took it away."""
    for topic in TOPICS:
        if engine_of(engine).catalog.find(topic) is None:
            queue = engine.queue(topic, "billing")
            queue.put_many([b"text", b"\xff"])
            queue.put(b"later", delay=3600)
            message = queue.get()
            assert message is not None
            message.reject("test")


def lead_somewhere(case: Case) -> None:
    """Have most of the names that are right be names of something that is there."""
    for name, known in NAMES.items():
        if name in case.path_parameters:
            given = str(case.path_parameters[name])
            case.path_parameters[name] = [*known, given][len(given) % (len(known) + 1)]


def is_right(case: Case, part: ParameterLocation) -> bool:
    made = case.meta.components.get(part) if case.meta else None
    return made is not None and made.mode is GenerationMode.POSITIVE


def is_not_wrong(case: Case) -> bool:
    """Whether a request that should have been made wrong was left as it is, which happens."""
    made = case.meta.phase.data if case.meta else None
    if isinstance(made, CoveragePhaseData):
        # It says so itself, and counts it as wrong where it has no schema to break, as of a frame.
        return made.scenario in RIGHT
    return isinstance(made, FuzzingPhaseData) and not made.mutations


def whole(value: Any) -> Any:
    """A whole number as one: to JSON schema 1.0 is an integer, to the broker it is a fraction."""
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    # The normal run asks the same every time; asked for a number, it goes where it has not been.
    derandomize="QUIVER_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
def test_the_broker_does_what_its_document_says(
    case: Case, served: Served, session: requests.Session
) -> None:
    prepare(served.engine)
    if is_right(case, ParameterLocation.PATH):
        lead_somewhere(case)
    if is_right(case, ParameterLocation.BODY):
        case.body = whole(case.body)
    not_meant: list[Any] = [negative_data_rejection] if is_not_wrong(case) else []
    case.call_and_validate(base_url=served.url, session=session, excluded_checks=not_meant)
