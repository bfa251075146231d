"""One look at everything: what there is, what happened, what does not work, and what to think of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quivermq.engine.activity import Problem, TopicActivity
from quivermq.engine.alerts import FILLS_UP_S, Evidence, judge
from quivermq.engine.trends import Trends
from quivermq.engine.watch import ChangeTracker
from quivermq.metrics import Counter, Histogram, Metrics
from quivermq.model.stats import EngineStats


@dataclass(frozen=True, slots=True)
class Survey:
    """The queue at one moment."""

    time_us: int
    stats: EngineStats
    """With the alerts."""
    activity: dict[str, TopicActivity]
    problems: list[Problem]


class Surveyor:
    """Judges each look, and remembers what later ones are judged by. Thread-safe."""

    def __init__(self, metrics: Metrics, sync_time: Histogram) -> None:
        self.watch = ChangeTracker()
        self._trends = Trends()
        self._metrics = metrics
        self._sync_time = sync_time

    def judged(
        self,
        stats: EngineStats,
        activity: dict[str, TopicActivity],
        problems: Sequence[Problem],
        now_us: int,
    ) -> Survey:
        """A look as a whole."""
        pending = {
            (topic, group): each.pending
            for topic, found in stats.topics.items()
            for group, each in found.groups.items()
        }
        self.watch.see(activity, pending, {"server_errors": self._server_errors()}, now_us)
        self._trends.see(stats.free_bytes, self._sync_time.tally(), now_us)
        evidence = Evidence(
            stats=stats.topics,
            activity=activity,
            problems=list(problems),
            free_bytes=stats.free_bytes,
            free_bytes_later=self._trends.free_bytes_in(FILLS_UP_S),
            fsync_p99_s=self._trends.sync_p99_s(),
            now_us=now_us,
        )
        alerts = judge(evidence, self.watch)
        return Survey(now_us, replace(stats, alerts=alerts), activity, list(problems))

    def _server_errors(self) -> int:
        return sum(
            int(counter.value)
            for counter in self._metrics.family("quiver_http_requests_total")
            if isinstance(counter, Counter) and dict(counter.labels)["status"].startswith("5")
        )
