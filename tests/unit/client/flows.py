"""Runs a flow without a socket: the test says what comes of each call."""

import json
from collections.abc import Callable
from typing import Any

from quivermq.client.core.call import Act, Answer, Broken, Call, Flow, Pause, Step

Reply = Answer | Broken | Callable[[Call], Answer]


class Script:
    """What a flow did: its calls and its pauses, answered one after the other."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.calls: list[Call] = []
        self.pauses: list[float] = []

    def run(self, flow: Flow[Any]) -> Any:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    step = flow.send(None)
                    continue
                if isinstance(step, Act):
                    step = _acted(flow, step)
                    continue
                assert isinstance(step, Call)
                self.calls.append(step)
                assert self._replies, f"nobody expected {step.method} {step.path}"
                reply = self._replies.pop(0)
                step = flow.send(reply(step) if callable(reply) else reply)
        except StopIteration as end:
            return end.value


def _acted(flow: Flow[Any], act: Act) -> Step:
    try:
        act.call()
    except Exception as error:
        return flow.throw(error)
    return flow.send(None)


def answer(document: Any = None, status: int = 200, **headers: str) -> Answer:
    body = b"" if document is None else json.dumps(document).encode()
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def error(code: str, status: int, **fields: Any) -> Answer:
    headers = {"retry_after": "1"} if status in (429, 503) else {}
    return answer({"error": {"code": code, "message": "so it is", **fields}}, status, **headers)
