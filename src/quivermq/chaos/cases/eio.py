"""Input/output errors of a real broker: its n-th write or sync is answered with one, by `strace`."""

from quivermq.chaos.broker import BrokerProcess, broker
from quivermq.chaos.expectation import expect
from quivermq.chaos.publisher import Publisher
from quivermq.chaos.tracing import failing
from quivermq.chaos.trial import Trial

CALLS = ("fdatasync", "writev")
_PUBLISHES = 5
_CODES = ("storage_failed", "fsync_failed")


def over_http(trial: Trial) -> None:
    """The publish fails, the partition is fenced, no later success is claimed, and others serve."""
    with trial.nursery() as lives, broker(lives, trial.data) as process:
        for cycle in range(trial.cycles):
            strike(process, trial, f"t{cycle}", CALLS[cycle % 2], trial.rng.randint(1, 3))
            trial.tried += 1


def strike(process: BrokerProcess, trial: Trial, topic: str, call: str, when: int) -> None:
    """Let the n-th call fail that is about one of two partitions, and start the broker again."""
    caller, publisher = process.caller(), Publisher(topic)
    caller.call("POST", "/v1/topics", {"name": topic, "partitions": 2})
    for partition in (0, 1):
        expect(publisher.publish(caller, partition).is_done, "nothing is wrong, and a publish fails")
    log = process.path / "topics" / topic / "p0" / "normal" / f"{0:020d}.log"
    answers = [publisher.publish(caller, 0) for _ in range(when - 1)]
    # Every call from here on, because strace counts those of each thread, and any thread may be the next.
    with failing(process.pid, call, "EIO", "1+", trial.directory / "strace.txt", below=log):
        answers += [publisher.publish(caller, 0) for _ in range(_PUBLISHES - when + 1)]
        expect(publisher.publish(caller, 1).is_done, "another partition does not serve")
    done = [answer.is_done for answer in answers]
    expect(done == [True] * (when - 1) + [False] * (_PUBLISHES - when + 1), f"{call}, {when}: {done}")
    for answer in answers[when - 1 :]:
        expect(answer.code in _CODES, f"not a clean error: {answer}")
    expect(not publisher.publish(caller, 0).is_done, "the partition is not fenced")
    expect(publisher.publish(caller, 1).is_done, "another partition does not serve")
    publisher.check(caller)
    process.restart()
    publisher.check(process.caller())
    for partition in (0, 1):
        expect(publisher.publish(process.caller(), partition).is_done, "it is still fenced")
