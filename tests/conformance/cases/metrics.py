"""Prometheus metrics."""

import re
from typing import Any

from tests.conformance.answers import Answer
from tests.conformance.asking import infer, loaded, message, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_stream import stream
from tests.conformance.cases.statistics import DECOUPLED, RAISING, REFUSING, SENDING, numbers
from tests.conformance.differences import COUNTS_GO_ON, MALFORMED_HTTP, MODEL_ERRORS_FAIL
from tests.conformance.servers import EXPLICIT, Setting
from tests.conformance.sources import CONFIG, IDENTITY, IMPORTS
from tests.conformance.steps import Bytes, Http, Only, Settled, Step

X = tensor("X", "INT32", [1, 2])
SAMPLE = re.compile(r"^(\w+(?:\{.*\})?) (\S+)$")
HISTOGRAMS = Setting(
    flags=(*EXPLICIT, "--metrics-config=histogram_latencies=true", "--metrics-config=summary_latencies=true"),
    models=("add_sub", "repeat"),
)
QUANTILES = Setting(
    flags=(
        *EXPLICIT,
        "--metrics-config=counter_latencies=false",
        "--metrics-config=summary_latencies=true",
        "--metrics-config=summary_quantiles=0.5:0.1,0.9:0.01",
    ),
    models=("add_sub",),
)
CUSTOM = (
    IMPORTS
    + """
class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily(name="custom_@", description="Of a model", kind=pb_utils.MetricFamily.COUNTER)
        self.family = family
        self.metric = family.Metric(labels={"b": "2", "a": "1"})
        self.gauge = pb_utils.MetricFamily(name="custom_gauge_@", description="A gauge", kind=pb_utils.MetricFamily.GAUGE)
        self.level = self.gauge.Metric(labels={})

    def execute(self, requests):
        self.metric.increment(2)
        self.level.set(-1.5)
        told = np.array([int(self.metric.value())], np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", told)]) for _ in requests]
"""
)


def scraped(pattern: str) -> Step:
    """The lines of the metrics in which the pattern is found: each sample by its name and labels."""

    def chosen(answer: Answer) -> Answer:
        kept: Answer = {"status": answer["status"]}
        for line in str(answer.get("body", "")).splitlines():
            if re.search(pattern, line):
                sample = SAMPLE.match(line)
                kept |= {sample[1]: number(sample[1], sample[2])} if sample else {line: ""}
        return kept

    return Only(Http("GET", "/metrics", metrics=True), chosen)


def number(name: str, text: str) -> Any:
    """A sample's value; of times, only whether it is 0."""
    value = float(text)
    return (
        "<time>"
        if value and re.search(r"_duration_us|_ms_sum|_ms_bucket|summary_us\{.*quantile|summary_us_sum", name)
        else value
    )


def measured(
    number: int, *asked: Step, source: str = IDENTITY, text: str = CONFIG, setting: Setting | None = None
) -> tuple[Step, ...]:
    """A model that is asked, and its samples."""
    name = f"measured_{number}"
    return loaded(name, text, source.replace("@", str(number)), *asked, Settled(scraped(name)))


TYPES = r"^# TYPE nv_inference"

CASES: list[Case] = [
    case("nothing asked", *measured(1)),
    case("one request", *measured(2, infer("measured_2", X))),
    case(
        "rows",
        *measured(
            3, infer("measured_3", tensor("X", "INT32", [[1], [2]])), text=CONFIG + "max_batch_size: 4"
        ),
    ),
    case("a request that is refused", *measured(4, infer("measured_4", tensor("Y", "INT32", [1])))),
    case("a wrong shape", *measured(5, infer("measured_5", tensor("X", "INT32", [[1]])))),
    case("a model that raises", *measured(6, infer("measured_6", X), source=RAISING)),
    case(
        "a model that refuses",
        *measured(7, infer("measured_7", X), source=REFUSING),
        differs=MODEL_ERRORS_FAIL,
    ),
    case(
        "responses",
        *measured(8, stream(message("measured_8", ("X", numbers(1, 2)))), source=SENDING, text=DECOUPLED),
    ),
    case(
        "metrics of a model",
        *loaded(
            "measured_9", CONFIG, CUSTOM.replace("@", "9"), infer("measured_9", X), scraped("custom_.*9")
        ),
    ),
    case("types", scraped(TYPES)),
    case(
        "other paths",
        Http("GET", "/", metrics=True),
        Only(Http("GET", "/metrics/", metrics=True), lambda answer: {"status": answer["status"]}),
        Http("GET", "/other", metrics=True),
    ),
    case("POST", Http("POST", "/metrics", metrics=True)),
    case("nonsense", Bytes(b"nonsense\r\n\r\n", metrics=True), differs=MALFORMED_HTTP),
    case(
        "metric tags",
        *measured(10, infer("measured_10", X), text=CONFIG + 'metric_tags { key: "a" value: "b" }'),
    ),
    case("histograms", *measured(11, infer("measured_11", X)), scraped(TYPES), setting=HISTOGRAMS),
    case(
        "histograms of responses",
        *measured(12, stream(message("measured_12", ("X", numbers(1, 2)))), source=SENDING, text=DECOUPLED),
        setting=HISTOGRAMS,
    ),
    case(
        "summaries with quantiles",
        *measured(14, infer("measured_14", X)),
        scraped(TYPES),
        setting=QUANTILES,
        differs=COUNTS_GO_ON,
    ),
]
