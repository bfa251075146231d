"""The number of a transfer, and finding it in the log it went to."""

from support.logs import Logs

from quivermq.frame import Producer
from quivermq.log import Log
from quivermq.topic.transfer import TRANSFER_EPOCH, find_transfer, new_transfer, transfer_producer


def send(log: Log, transfer: int, *values: bytes) -> int:
    return log.append_many(list(values), producer=transfer_producer(transfer))


def test_no_two_transfers_have_the_same_number() -> None:
    numbers = {new_transfer() for _ in range(1000)}
    assert len(numbers) == 1000
    # As a signed number in a journal, and never 0, which would be nobody.
    assert all(0 < number < 2**63 for number in numbers)


def test_a_transfer_is_found_where_it_is(faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    log.append(b"before")
    start = log.end
    log.append(b"somebody else's")
    send(log, 77, b"a", b"b")
    log.append(b"after")
    assert find_transfer(log, start, 77) == range(2, 4)


def test_a_transfer_that_did_not_arrive_is_not_found(faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    send(log, 76, b"a")
    assert find_transfer(log, 0, 77) is None


def test_a_transfer_is_looked_for_only_behind_its_start(faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    send(log, 77, b"a")
    assert find_transfer(log, 1, 77) is None


def test_a_log_that_lost_its_end_does_not_have_it(faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    log.append(b"a")
    assert find_transfer(log, 5, 77) is None


def test_a_producer_that_happens_to_have_the_number_is_not_a_transfer(faulty_logs: Logs) -> None:
    log = faulty_logs.open()
    log.append_many([b"a"], producer=Producer(77, TRANSFER_EPOCH - 1))
    assert find_transfer(log, 0, 77) is None


def test_what_retention_took_is_not_asked_for(faulty_logs: Logs) -> None:
    log = faulty_logs.open(segment_messages=1)
    for _ in range(3):
        log.append(b"a")
    send(log, 77, b"b")
    log.retain(finished=2)
    assert log.start == 2
    assert find_transfer(log, 0, 77) == range(3, 4)
