"""What is wrong, judged by the rules of deploy/prometheus/alerts.yaml: the same names, thresholds, times.

A test holds the two together. Prometheus asks the metrics and remembers by itself; here the same questions
are asked of one look at the queue and of what `ChangeTracker` remembers, so that a broker that nobody
watches, and a directory that nobody serves, tell the same of themselves.
"""

from collections.abc import Iterator

from quivermq.engine.rules import SECOND_US, Evidence, Rule, RuleMatch, judged, many, size
from quivermq.engine.store_alerts import STORE_RULES
from quivermq.engine.watch import ChangeTracker
from quivermq.model.stats import Alert

MINUTE_US = 60 * SECOND_US
FREE_BYTES_LOW = 2e9
FILLS_UP_S = 4 * 3600
UNACKED_S = 300
LEASES_A_SECOND = 0.1
FSYNC_S = 0.5


def judge(evidence: Evidence, watch: ChangeTracker) -> list[Alert]:
    """Everything that is wrong with a queue, the worst first."""
    return judged(RULES, evidence, watch)


# How each is asked.


def _broken(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    for each in evidence.problems:
        yield RuleMatch(each.message, 1, each.topic, each.group, each.partition, each.priority)


def _disk_nearly_full(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.free_bytes < FREE_BYTES_LOW:
        yield RuleMatch(f"{size(evidence.free_bytes)} are left on the disk", -evidence.free_bytes)


def _disk_fills_up(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.free_bytes_later is not None and evidence.free_bytes_later < 0:
        yield RuleMatch("the disk is full in four hours at this rate", 1)


def _errors(evidence: Evidence, watch: ChangeTracker) -> Iterator[RuleMatch]:
    if count := watch.rise("server_errors", 5 * MINUTE_US, evidence.now_us):
        yield RuleMatch(f"{many(count, 'request')} of the last five minutes failed in the broker", count)


def _refuses(evidence: Evidence, watch: ChangeTracker) -> Iterator[RuleMatch]:
    for (topic, _), count in watch.risen("refused", 5 * MINUTE_US, evidence.now_us).items():
        yield RuleMatch(f"{topic} refuses messages: its backlog is full", count, topic)


def _drops(evidence: Evidence, watch: ChangeTracker) -> Iterator[RuleMatch]:
    for (topic, _), count in watch.risen("dropped", 5 * MINUTE_US, evidence.now_us).items():
        yield RuleMatch(
            f"{topic} drops old messages for new ones, as its backlog_policy says", count, topic
        )


def _fall_behind(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    for topic, done in evidence.activity.items():
        for group, had in done.groups.items():
            if had.oldest_unacked_ms > UNACKED_S * 1000:
                # To the minute, so that it does not say something new with every look.
                minutes = had.oldest_unacked_ms // 60_000
                held_us = (had.oldest_unacked_ms - UNACKED_S * 1000) * 1000
                words = f"{group} has had a message of {topic} unfinished for {_minutes(minutes)}"
                yield RuleMatch(words, minutes * 60, topic, group, held_us=held_us)


def _nobody_consumes(evidence: Evidence, watch: ChangeTracker) -> Iterator[RuleMatch]:
    for topic, stats in evidence.stats.items():
        for group, each in stats.groups.items():
            moved_us = watch.pace(topic, group).moved_us
            if each.pending and (moved_us is None or evidence.now_us - moved_us > 10 * MINUTE_US):
                wait = f"{many(each.pending, 'message')} {'waits' if each.pending == 1 else 'wait'}"
                yield RuleMatch(
                    f"{group} takes nothing of {topic}, where {wait}", each.pending, topic, group
                )


def _leases(evidence: Evidence, watch: ChangeTracker) -> Iterator[RuleMatch]:
    for (topic, group), count in watch.risen("leases_expired", 10 * MINUTE_US, evidence.now_us).items():
        if count > LEASES_A_SECOND * 600:
            words = f"leases of {topic} run out in {group}: {count:,} in ten minutes"
            yield RuleMatch(words, count, topic, group)


def _slow_disk(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    if evidence.fsync_p99_s is not None and evidence.fsync_p99_s > FSYNC_S:
        words = f"one fsync in a hundred takes longer than {evidence.fsync_p99_s:.1f} s"
        yield RuleMatch(words, evidence.fsync_p99_s)


def _dead_letters(evidence: Evidence, watch: ChangeTracker) -> Iterator[RuleMatch]:
    for (topic, group), count in watch.risen("dead_lettered", 15 * MINUTE_US, evidence.now_us).items():
        words = f"{group} gave up {many(count, 'message')} of {topic} in the last quarter of an hour"
        yield RuleMatch(words, count, topic, group)


def _dead_letters_wait(evidence: Evidence, _: ChangeTracker) -> Iterator[RuleMatch]:
    for topic, stats in evidence.stats.items():
        if count := stats.dead_letters:
            verb = "waits" if count == 1 else "wait"
            yield RuleMatch(f"{many(count, 'dead letter')} of {topic} {verb} for a decision", count, topic)


# The rules, the worst of a severity first, and those of a store behind them.

RULES: tuple[Rule[Evidence], ...] = (
    Rule("QuiverDown", "page", 60, 'up{job="quiver"} == 0', None),
    Rule("QuiverBroken", "page", 0, "quiver_problems > 0", _broken, is_moment=True),
    Rule(
        "QuiverDiskNearlyFull",
        "page",
        60,
        f"quiver_disk_free_bytes < {FREE_BYTES_LOW:.0e}".replace("e+0", "e"),
        _disk_nearly_full,
        is_moment=True,
    ),
    Rule(
        "QuiverErrors",
        "page",
        120,
        'sum by (instance) (rate(quiver_http_requests_total{status=~"5.."}[5m])) > 0',
        _errors,
    ),
    Rule(
        "QuiverRefusesMessages",
        "page",
        0,
        "sum by (instance, topic) (rate(quiver_messages_refused_total[5m])) > 0",
        _refuses,
    ),
    Rule(
        "QuiverDropsMessages",
        "page",
        0,
        "sum by (instance, topic) (rate(quiver_messages_dropped_total[5m])) > 0",
        _drops,
    ),
    Rule(
        "QuiverConsumersFallBehind",
        "page",
        300,
        f"quiver_group_oldest_unacked_seconds > {UNACKED_S}",
        _fall_behind,
        is_moment=True,
    ),
    Rule(
        "QuiverDiskFillsUp",
        "ticket",
        600,
        "predict_linear(quiver_disk_free_bytes[1h], 4 * 3600) < 0",
        _disk_fills_up,
    ),
    Rule(
        "QuiverNobodyConsumes",
        "ticket",
        600,
        "quiver_group_pending > 0"
        " unless on (instance, topic, group) rate(quiver_messages_delivered_total[10m]) > 0",
        _nobody_consumes,
    ),
    Rule(
        "QuiverLeasesRunOut",
        "ticket",
        600,
        f"sum by (instance, topic, group) (rate(quiver_leases_expired_total[10m])) > {LEASES_A_SECOND}",
        _leases,
    ),
    Rule(
        "QuiverSlowDisk",
        "ticket",
        300,
        "histogram_quantile(0.99, sum by (instance, le) (rate(quiver_fsync_seconds_bucket[5m])))"
        f" > {FSYNC_S}",
        _slow_disk,
    ),
    Rule(
        "QuiverDeadLetters",
        "ticket",
        0,
        "sum by (instance, topic, group) (increase(quiver_messages_dead_lettered_total[15m])) > 0",
        _dead_letters,
    ),
    Rule(
        "QuiverDeadLettersWait",
        "ticket",
        0,
        "quiver_topic_dead_letters > 0",
        _dead_letters_wait,
        is_moment=True,
    ),
    *STORE_RULES,
)


def _minutes(minutes: int) -> str:
    days, hours = minutes // 1440, minutes // 60
    if days:
        return f"{many(days, 'day')}"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
