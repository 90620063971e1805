"""Requests to a server that traces with OpenTelemetry, as a collector sees them."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from halimede.frontends.sagemaker.settings import DEFAULT_MODEL
from tests.frontends.test_openmetrics import PARSE
from tests.support.names import new_name, new_number
from tests.support.otlp_receiver import Collector, ReceivedSpan, otlp_receiver
from tests.support.server import ServerProcess, run_command, start_server

pytestmark = pytest.mark.timeout(240)

CONTEXT_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor("y", np.full(shape_of(request), str(request.trace().get_context()), object))
            ])
            for request in requests
        ]

def shape_of(request):
    return pb_utils.get_input_tensor_by_name(request, "x").as_numpy().shape
"""

CALLING_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            ask = dict(model_name="context", inputs=[x], requested_output_names=["y"])
            answer = pb_utils.InferenceRequest(**ask, trace=request.trace()).exec()
            pb_utils.InferenceRequest(**ask).exec()
            responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
        return responses
"""

CONFIG = """
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_STRING dims: [1] }
"""

ENSEMBLE = """
platform: "ensemble"
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_STRING dims: [1] }
output { name: "called" data_type: TYPE_STRING dims: [1] }
ensemble_scheduling { step [
  { model_name: "calling" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "called" } },
  { model_name: "context" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }
] }
"""


def write(repository: Path, name: str, config: str, code: str = "") -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    if code:
        (repository / name / "1" / "model.py").write_text(code)


def flags(collector: Collector, rate: int) -> tuple[str, ...]:
    return (
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={collector.url}",
        "--trace-config=opentelemetry,bsp_schedule_delay=50",
        "--trace-config=level=TIMESTAMPS",
        f"--trace-config=rate={rate}",
    )


class Traced:
    """A server that traces only what its clients trace, and its collector."""

    def __init__(self, server: ServerProcess, collector: Collector) -> None:
        self.server = server
        self.collector = collector

    def ask(self, model: str, headers: dict[str, str], request_id: str = "") -> str:
        """Ask over HTTP: the context that the model saw."""
        tensor = httpclient.InferInput("x", [1], "FP32")
        tensor.set_data_from_numpy(np.zeros(1, np.float32))
        with httpclient.InferenceServerClient(self.server.http) as client:
            result = client.infer(model, [tensor], headers=headers, request_id=request_id)
        return str(result.as_numpy("y")[0].decode())

    def spans(self, request_id: str, count: int) -> dict[str, ReceivedSpan]:
        """The spans of the trace of the request with that id, once there are so many, by their names."""

        def found(collector: Collector) -> list[ReceivedSpan]:
            for span in collector.spans:
                if span.attributes.get("triton.request_id") == request_id:
                    return [other for other in collector.spans if other.trace_id == span.trace_id]
            return []

        self.collector.wait_for(lambda collector: len(found(collector)) >= count)
        spans = found(self.collector)
        assert len(spans) == count
        return {f"{span.name}<{parent_name(spans, span)}": span for span in spans}


def parent_name(spans: list[ReceivedSpan], span: ReceivedSpan) -> str:
    return next((other.name for other in spans if other.span_id == span.parent), "")


def trace_id(number: int) -> str:
    return f"{number:032x}"


def traceparent(number: int, span: int = 7) -> str:
    return f"00-{number:032x}-{span:016x}-01"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    repository = tmp_path_factory.mktemp("repository")
    write(repository, "context", CONFIG, CONTEXT_MODEL)
    write(repository, "calling", CONFIG, CALLING_MODEL)
    write(repository, "ensemble", ENSEMBLE)
    cached = CONFIG + "response_cache { enable: true } dynamic_batching {} max_batch_size: 4"
    write(repository, "cached", cached, CONTEXT_MODEL)
    with (
        pytest.MonkeyPatch.context() as patch,
        otlp_receiver() as collector,
    ):
        patch.setenv(DEFAULT_MODEL, "context")
        with start_server(
            repository, *flags(collector, 0), "--allow-sagemaker=true", "--cache-config=local,size=1048576"
        ) as server:
            yield Traced(server, collector)


@pytest.mark.front_ends
def test_request_of_a_traced_client_is_below_its_span(traced: Traced) -> None:
    request_id, number = new_name("plain"), new_number()
    context = traced.ask("context", {"traceparent": traceparent(number), "tracestate": "a=b"}, request_id)
    spans = traced.spans(request_id, 4)
    assert set(spans) == {"InferRequest<", "context<InferRequest", "queue<context", "compute<context"}
    request, model = spans["InferRequest<"], spans["context<InferRequest"]
    assert request.trace_id == trace_id(number)
    assert request.parent == f"{7:016x}"
    assert request.start <= model.start <= spans["compute<context"].start
    assert spans["compute<context"].end <= model.end <= request.end
    assert json.loads(context) == {
        "traceparent": f"00-{model.trace_id}-{model.span_id}-01",
        "tracestate": "a=b",
    }
    assert model.attributes["halimede.batch.size"] == 1
    assert model.attributes["halimede.instance"] == "context_0"
    assert [name for name, _ in request.events] == [
        "HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip


@pytest.mark.front_ends
def test_steps_of_an_ensemble_and_calls_of_a_model_are_below_their_causes(traced: Traced) -> None:
    request_id = new_name("ensemble")
    context = traced.ask("ensemble", {"traceparent": traceparent(new_number())}, request_id)
    spans = traced.spans(request_id, 11)
    assert set(spans) == {
        "InferRequest<",
        "ensemble<InferRequest",
        "calling<ensemble",
        "queue<calling",
        "compute<calling",
        "context<calling",
        "context<ensemble",
        "queue<context",
        "compute<context",
    }
    assert json.loads(context)["traceparent"].split("-")[2] == spans["context<ensemble"].span_id
    whole = spans["ensemble<InferRequest"]
    assert (
        spans["calling<ensemble"].attributes["triton.trace_parent_id"] == whole.attributes["triton.trace_id"]
    )


@pytest.mark.front_ends
def test_grpc_metadata_name_the_span_above(traced: Traced) -> None:
    tensor = grpcclient.InferInput("x", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, np.float32))
    request_id, headers = new_name("grpc"), {"traceparent": traceparent(new_number())}
    with grpcclient.InferenceServerClient(traced.server.grpc) as client:
        client.infer("context", [tensor], headers=headers, request_id=request_id)
    spans = traced.spans(request_id, 4)
    assert spans["InferRequest<"].parent == f"{7:016x}"
    assert [name for name, _ in spans["InferRequest<"].events][:2] == [
        "GRPC_WAITREAD_START",
        "GRPC_WAITREAD_END",
    ]


@pytest.mark.front_ends
def test_sagemaker_request_is_below_its_clients_span(traced: Traced) -> None:
    request_id, headers = new_name("sagemaker"), {"traceparent": traceparent(new_number())}
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    body = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
    url = f"http://{traced.server.sagemaker}/invocations"
    urllib.request.urlopen(urllib.request.Request(url, body, headers)).close()
    assert traced.spans(request_id, 4)["InferRequest<"].parent == f"{7:016x}"


@pytest.mark.front_ends
def test_request_of_a_client_that_does_not_sample_is_traced_as_by_tritonserver(traced: Traced) -> None:
    request_id, trace = new_name("unsampled"), f"4bf92f3577b34da6{new_number():016x}"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-00", "tracestate": "a=b"}
    context = json.loads(traced.ask("context", headers, request_id))
    spans = traced.spans(request_id, 4)
    request, model = spans["InferRequest<"], spans["context<InferRequest"]
    assert (request.trace_id, request.parent, request.state) == (trace, "00f067aa0ba902b7", "a=b")
    assert context["traceparent"] == f"00-{trace}-{model.span_id}-01"


@pytest.mark.front_ends
def test_request_without_a_span_above_is_not_traced_at_rate_0(traced: Traced) -> None:
    assert traced.ask("context", {}) == "None"
    assert traced.ask("context", {"traceparent": "junk"}) == "None"


@pytest.mark.front_ends
def test_outcome_of_the_response_cache_is_known(traced: Traced) -> None:
    tensor = httpclient.InferInput("x", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.full((1, 1), new_number(), np.float32))
    for outcome in ("miss", "hit"):
        request_id, number = new_name(outcome), new_number()
        with httpclient.InferenceServerClient(traced.server.http) as client:
            headers = {"traceparent": traceparent(number)}
            client.infer("cached", [tensor], headers=headers, request_id=request_id)
        found = traced.spans(request_id, 4 if outcome == "miss" else 2)["cached<InferRequest"]
        assert found.attributes["halimede.cache"] == outcome
    assert found.trace_id == trace_id(number)


@pytest.mark.front_ends
def test_batch_says_why_it_was_closed(traced: Traced) -> None:
    tensor = httpclient.InferInput("x", [3, 1], "FP32")
    tensor.set_data_from_numpy(np.full((3, 1), new_number(), np.float32))
    request_id, headers = new_name("batch"), {"traceparent": traceparent(new_number())}
    with httpclient.InferenceServerClient(traced.server.http) as client:
        client.infer("cached", [tensor], headers=headers, request_id=request_id)
    attributes = traced.spans(request_id, 4)["cached<InferRequest"].attributes
    assert attributes["halimede.batch.size"] == 3
    assert attributes["halimede.batch.closed_by"] == "instance free"


@pytest.mark.front_ends
def test_failed_request_has_its_error(traced: Traced) -> None:
    request_id, headers = new_name("bad"), {"traceparent": traceparent(new_number())}
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    body = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
    url = f"http://{traced.server.http}/v2/models/context/infer"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(url, body, headers))
    spans = traced.spans(request_id, 2)
    code, message = spans["context<InferRequest"].status
    assert code == 2
    assert "unexpected shape for input 'x'" in message


@pytest.mark.front_ends
def test_latency_histograms_name_the_traces(traced: Traced) -> None:
    request_id = new_name("exemplar")
    traced.ask("context", {"traceparent": traceparent(new_number())}, request_id)
    model = traced.spans(request_id, 4)["context<InferRequest"]
    request = urllib.request.Request(
        f"http://{traced.server.metrics}/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    with urllib.request.urlopen(request) as response:
        families = {each.name: each for each in PARSE(response.read().decode())}
    for name in ("request", "queue", "compute"):
        exemplars = [
            sample.exemplar.labels
            for sample in families[f"nv_inference_{name}_duration_histogram_us"].samples
            if sample.exemplar is not None and sample.labels["model"] == "context"
        ]
        assert {"trace_id": model.trace_id, "span_id": model.span_id} in exemplars


@pytest.mark.front_ends
def test_settings_show_the_options(traced: Traced) -> None:
    with urllib.request.urlopen(f"http://{traced.server.http}/v2/trace/setting") as response:
        settings = json.load(response)
    assert settings["trace_mode"] == "opentelemetry"
    assert settings["url"] == traced.collector.url
    assert settings["bsp_schedule_delay"] == "50"
    assert settings["bsp_max_queue_size"] == "2048"
    assert settings["bsp_max_export_batch_size"] == "512"


def test_collector_that_is_away_is_a_metric_and_a_line_of_the_log(tmp_path: Path) -> None:
    write(tmp_path, "context", CONFIG, CONTEXT_MODEL)
    with otlp_receiver() as collector:
        collector.status = 403
        with start_server(tmp_path, *flags(collector, 1)) as server:
            away = Traced(server, collector)
            away.ask("context", {})
            server.wait_for("tracing: 1 traces were dropped, 1 in all; the latest reason: Forbidden")
            away.ask("context", {})
            with urllib.request.urlopen(f"http://{server.metrics}/metrics") as response:
                assert b"halimede_traces_dropped_total " in response.read()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("url=collector:4318", "opentelemetry,url is 'collector:4318'; it must be like http://"),
        ("bsp_max_queue_size=x", "bsp_max_queue_size is 'x'; it must be a whole number from 1 to 2147483647"),
    ],
)
def test_option_that_cannot_be_used_is_told_at_start(tmp_path: Path, option: str, message: str) -> None:
    ended = run_command(
        "serve",
        f"--model-repository={tmp_path}",
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,{option}",
    )
    assert ended.returncode == 2
    assert message in ended.stderr
