"""The state of a queue as its broker tells it."""

from collections.abc import Iterator, Mapping
from typing import Any

from quivermq.client.core.wire import decoded, path_of
from quivermq.errors import GroupNotFound, NotFound
from quivermq.spark.broker_place import BrokerPlace
from quivermq.spark.tables.rows import DeliveryRow, GroupRow, SegmentRow, delivery_row
from quivermq.topic.partition import LANE_NUMBERS

_PAGE = 10_000
_DELIVERY = ("offset", "attempt", "state", "time", "owner", "first_delivered_at", "last_delivered_at")


class BrokerState:
    """Asks over HTTP, page by page."""

    def __init__(self, place: BrokerPlace) -> None:
        self._place = place

    def groups(self, topic: str) -> list[str]:
        return sorted(self._ask("topics", topic)["groups"])

    def group_rows(self, topic: str, group: str) -> Iterator[GroupRow]:
        try:
            told = self._ask("topics", topic, "groups", group)
            committed = self._ask("groups", group, "offsets", topic=topic)["offsets"]
            state = self._ask("groups", group)["state"]
        except GroupNotFound:
            return  # Somebody has just deleted it.
        cursors = {(each["partition"], each["priority"]): each["offset"] for each in committed}
        for lane in told["partitions"]:
            place = lane["partition"], lane["priority"]
            if not lane["end"]:
                continue
            yield GroupRow(
                topic,
                *place,
                group,
                cursor=cursors.get(place),
                position=lane["position"],
                start=lane["start"],
                end=lane["end"],
                lag=lane["lag"],
                in_flight=lane["in_flight"],
                retrying=lane["retrying"],
                waiting_for_key=lane["waiting_for_key"],
                state=state,
                members=len(told["members"]),
            )

    def delivery_rows(self, topic: str, group: str) -> Iterator[DeliveryRow]:
        for each in self._pages("deliveries", "offset", "topics", topic, "groups", group, "deliveries"):
            lane = topic, each["partition"], each["priority"]
            yield delivery_row(lane, group, *(each[name] for name in _DELIVERY))

    def segment_rows(self, topic: str) -> Iterator[SegmentRow]:
        for each in self._pages("segments", "base_offset", "topics", topic, "segments"):
            base, end = each["base_offset"], each["end_offset"]
            yield SegmentRow(
                topic,
                each["partition"],
                each["priority"],
                base,
                end,
                each["bytes"],
                None,
                end - base,
                each["first_timestamp"],
                each["last_timestamp"],
                each["sealed"],
                None,
            )

    def _pages(self, name: str, number: str, *parts: str) -> Iterator[Mapping[str, Any]]:
        """Everything of a list; nothing of what is not there any more."""
        query = {"limit": str(_PAGE)}
        while True:
            try:
                page = self._ask(*parts, **query)[name]
            except NotFound:
                return
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1]
            query["after"] = f"{last['partition']}-{LANE_NUMBERS[last['priority']]}-{last[number]}"

    def _ask(self, *parts: str, **query: str) -> Mapping[str, Any]:
        connection = self._place.connection
        answer = connection.shell.run(connection.calls.ask("GET", path_of(*parts), query=query))
        told: Mapping[str, Any] = decoded(answer.body)
        return told
