"""The benchmarks of the broker count what servers have, and tell nothing of one that lost something."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

import quivermq
from benchmarks.broker.load import fill, fresh_topic, publishing, run_generator, run_pacer
from benchmarks.broker.plan import PacedPlan, Plan, per_mille
from benchmarks.broker.processes import server_process
from benchmarks.broker.quiver import BARE, QUIVER, start_quiver
from benchmarks.broker.request import Request
from benchmarks.broker.server import Kind, Server
from benchmarks.broker.servers import DURABILITIES, PEERS
from benchmarks.shape import KEY_BYTES, MESSAGE_BYTES, SHAPES, TIME_US, TRACE, TYPE, Shape
from quivermq.settings import Durability

INSTALLED = [kind for kind in (QUIVER, *PEERS) if kind.obstacle is None]
MESSAGES = 200


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", INSTALLED, ids=lambda kind: kind.name)
def test_every_server_has_what_it_acknowledged(
    kind: Kind, durability: Durability, shape: Shape, tmp_path: Path
) -> None:
    with kind.start(tmp_path / "server", durability) as server:
        with fresh_topic(server) as topic:
            fill(server, topic, MESSAGES, 100, shape)
            server.add_group(topic)
            assert server.stored(topic) == MESSAGES
            assert server.settled(topic) == 0
            consumer = server.consumer(topic, shape)
            assert consumer.take(100, 100, until=time.perf_counter() + 60) == 100
            consumer.close()
            assert (server.stored(topic), server.settled(topic)) == (MESSAGES, 100)
        seen = publishing(server, lambda topic: server.publish(topic, shape), connections=2, seconds=0.05)
        assert seen.messages > 0


@pytest.mark.parametrize("form", ["raw", "JSON", "frame"])
def test_a_real_message_has_a_key_two_headers_and_its_time_in_the_broker(form: str, tmp_path: Path) -> None:
    with start_quiver(tmp_path / "server", "os") as server, fresh_topic(server) as topic:
        request_of: dict[str, Request] = {
            "raw": server.publish(topic, "real"),
            "JSON": server.publish_json(topic, "real"),
            "frame": server.publish_many(topic, 1, "real"),
        }
        run_generator(Plan(server.port, request_of[form], 1, requests=1))
        with quivermq.connect(server.url) as connection:
            (stored,) = connection.queue(topic).read(0, 0)
    assert len(stored.value) == MESSAGE_BYTES
    assert stored.key is not None
    assert len(stored.key) == KEY_BYTES
    assert set(stored.headers) == {TRACE, TYPE}
    assert stored.timestamp == TIME_US


@pytest.mark.parametrize("kind", [BARE, *INSTALLED], ids=lambda kind: kind.name)
def test_a_steady_load_is_answered_as_often_as_it_was_sent(kind: Kind, tmp_path: Path) -> None:
    with kind.start(tmp_path / "server", "os") as server, fresh_topic(server) as topic:
        done = run_pacer(PacedPlan(server.port, server.publish(topic), 3, per_second=1000, seconds=0.05))
        server.check(topic, done.answers, done.last)
    assert done.answers == 50
    assert list(done.answered_s) == sorted(done.answered_s)
    assert done.answered_s[0] > 0


class Liar:
    """Asks a real server for something else than the benchmarks think."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def publish(self, topic: str) -> Request:
        asked = self._server.publish(topic)
        return replace(asked, data=asked.data.replace(b"POST", b"PUT"))


def test_a_figure_is_not_told_of_a_server_that_stores_nothing(tmp_path: Path) -> None:
    with QUIVER.start(tmp_path / "server", "os") as server:
        liar = Liar(server)
        with pytest.raises(RuntimeError, match="takes POST, not PUT"):
            publishing(server, liar.publish, connections=2, seconds=0.05)


def test_a_figure_is_not_told_of_an_ack_more_or_less(tmp_path: Path) -> None:
    with QUIVER.start(tmp_path / "server", "os") as server, fresh_topic(server) as topic:
        fill(server, topic, 100, 100)
        server.check(topic, 100, b"")
        for acknowledged in (99, 101):
            with pytest.raises(RuntimeError, match=f"acknowledged {acknowledged} messages and has 100"):
                server.check(topic, acknowledged, b"")


def test_a_server_that_does_not_start_is_told_with_its_words(tmp_path: Path) -> None:
    command = ["python3", "-c", "raise SystemExit('no such luck')"]
    with (
        pytest.raises(RuntimeError, match="no such luck"),
        server_process(command, 1, tmp_path / "log"),
    ):
        pass


def test_a_program_that_is_missing_is_told_with_where_to_get_it() -> None:
    kind = replace(QUIVER, program="quiver-no-such-program", source="`pip install it` has it")
    assert kind.obstacle == "there is no quiver-no-such-program here: `pip install it` has it"


@pytest.mark.parametrize(
    ("seconds", "p50", "p99", "largest"),
    [
        ([3.0], 3.0, 3.0, 3.0),
        ([2.0, 1.0], 1.0, 2.0, 2.0),
        ([float(place) for place in range(100, 0, -1)], 50.0, 99.0, 100.0),
        ([float(place) for place in range(1, 10_001)], 5000.0, 9900.0, 10_000.0),
    ],
)
def test_percentiles_are_the_smallest_that_so_many_do_not_exceed(
    seconds: list[float], p50: float, p99: float, largest: float
) -> None:
    found = per_mille(seconds)
    assert (found[499], found[989], found[999]) == (p50, p99, largest)
