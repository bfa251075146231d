"""The load at a steady rate: `python -m benchmarks.broker.pacer`, with a plan on stdin as the generator's.

An open loop: each request has a moment at which it is due, and its latency counts from that moment, however
late it was sent. So a server that stops for a while is charged for every request that it kept from being
sent. One thread sends, and sleeps between; the other one waits for answers.
"""

import pickle
import select
import sys
import threading
import time
from collections import deque

from benchmarks.broker.plan import PacedDone, PacedPlan, per_mille
from benchmarks.broker.processes import connection
from benchmarks.broker.request import CONNECTION

_ANSWER_BYTES = 64 * 1024
# What is not answered so long after the last request is not answered at all.
_PATIENCE_S = 60.0
# Before the first request is due.
_RUN_UP_S = 0.1


class _Line:
    """One connection, and when the requests on it that are not answered were due."""

    def __init__(self, plan: PacedPlan, number: int) -> None:
        request = plan.request
        self.data = request.data.replace(CONNECTION, b"%06d" % number)
        self.due: deque[float] = deque()
        self.seen = 0
        self.last = b""
        self.socket = connection(plan.port)
        if request.greeting:
            self.socket.sendall(request.greeting.replace(CONNECTION, b"%06d" % number))
            said = b""
            while not said.endswith(request.greeted):
                said += self._received()

    def _received(self) -> bytes:
        data = self.socket.recv(_ANSWER_BYTES)
        if not data:
            raise ConnectionError("the server closed a connection")
        return data

    def hear(self, mark: bytes, marks: int) -> int:
        """Take what came, and return how many answers it brought."""
        self.last = self._received()
        self.seen += self.last.count(mark)
        answers, self.seen = divmod(self.seen, marks)
        return answers


def _send(lines: list[_Line], plan: PacedPlan, start: float, sent_s: list[float]) -> None:
    for place in range(round(plan.per_second * plan.seconds)):
        due = start + place / plan.per_second
        line = lines[place % len(lines)]
        early_s = due - time.perf_counter()
        if early_s > 0:
            time.sleep(early_s)
        line.due.append(due)
        sent_s.append(max(0.0, time.perf_counter() - due))
        line.socket.sendall(line.data)


def _receive(lines: list[_Line], plan: PacedPlan) -> list[float]:
    poll, by_number = select.epoll(), {line.socket.fileno(): line for line in lines}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    wanted = round(plan.per_second * plan.seconds)
    answered_s: list[float] = []
    while len(answered_s) < wanted:
        ready = poll.poll(_PATIENCE_S)
        if not ready:
            raise TimeoutError(f"of {wanted} requests only {len(answered_s)} were answered")
        for number, _ in ready:
            line = by_number[number]
            answers = line.hear(plan.request.mark, plan.request.marks)
            now = time.perf_counter()
            answered_s += [now - line.due.popleft() for _ in range(answers)]
    return answered_s


def main() -> None:
    plan: PacedPlan = pickle.load(sys.stdin.buffer)
    lines = [_Line(plan, number) for number in range(plan.connections)]
    # The sender must not wait for the receiver to give the interpreter back.
    sys.setswitchinterval(0.0001)
    sent_s: list[float] = []
    start = time.perf_counter() + _RUN_UP_S
    sender = threading.Thread(target=_send, args=(lines, plan, start, sent_s), daemon=True)
    sender.start()
    answered_s = _receive(lines, plan)
    done = PacedDone(
        len(answered_s),
        per_mille(answered_s),
        per_mille(sent_s),
        lines[0].last,
    )
    pickle.dump(done, sys.stdout.buffer)


if __name__ == "__main__":
    main()
