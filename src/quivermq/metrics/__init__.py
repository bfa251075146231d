"""What is measured: the kinds of metrics, and the registry that has them all."""

from quivermq.metrics.metric import Counter as Counter
from quivermq.metrics.metric import Gauge as Gauge
from quivermq.metrics.metric import Histogram as Histogram
from quivermq.metrics.metric import Labels as Labels
from quivermq.metrics.metric import Metric as Metric
from quivermq.metrics.metric import Number as Number
from quivermq.metrics.metric import Sample as Sample
from quivermq.metrics.metric import percentile_between as percentile_between
from quivermq.metrics.registry import LABEL_SETS_MAX as LABEL_SETS_MAX
from quivermq.metrics.registry import OTHER as OTHER
from quivermq.metrics.registry import Metrics as Metrics
from quivermq.metrics.registry import labels_of as labels_of
