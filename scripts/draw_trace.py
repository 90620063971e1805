"""Draws `docs/trace.svg`: a request to an ensemble, as `halimede serve` traces it with OpenTelemetry.

    python scripts/draw_trace.py

It serves an ensemble of Python models that do nothing but take their time, takes the trace of one request as a
collector does, and draws its spans one below the other.
"""

import http.client
import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.otlp_receiver import ReceivedSpan, otlp_receiver  # noqa: E402 - the tests are not installed
from tests.support.server import start_server  # noqa: E402

PICTURE = ROOT / "docs" / "trace.svg"

MODEL = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep({milliseconds} / 1000)
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "IN")
            if "{calls}":
                ask = pb_utils.InferenceRequest(
                    model_name="{calls}", inputs=[text], requested_output_names=["OUT"], trace=request.trace()
                )
                ask.exec()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text.as_numpy())]))
        return responses
"""
MODELS = {"tokenize": (4, ""), "embed": (9, ""), "rank": (3, "rerank"), "rerank": (6, "")}
"""Model → milliseconds that it takes, and the model that it calls."""

TENSORS = """
input { name: "IN" data_type: TYPE_FP32 dims: [1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [1] }
"""
STEPS = (("tokenize", "IN", "tokens"), ("embed", "tokens", "vectors"), ("rank", "vectors", "OUT"))

WIDTH, ROW, LEFT, TOP = 760, 22, 190, 26
COLOURS = {"InferRequest": "#4878a8", "queue": "#c8c8c8", "compute": "#d98b3f"}
MODEL_COLOUR = "#6aa56a"


def write_repository(repository: Path) -> None:
    """The models, and the ensemble `search` of them."""
    for name, (milliseconds, calls) in MODELS.items():
        directory = repository / name / "1"
        directory.mkdir(parents=True)
        (directory / "model.py").write_text(MODEL.format(milliseconds=milliseconds, calls=calls))
        (repository / name / "config.pbtxt").write_text(f'backend: "python"{TENSORS}')
    steps = ", ".join(
        f'{{ model_name: "{name}" model_version: -1 input_map {{ key: "IN" value: "{taken}" }} '
        f'output_map {{ key: "OUT" value: "{given}" }} }}'
        for name, taken, given in STEPS
    )
    (repository / "search" / "1").mkdir(parents=True)
    (repository / "search" / "config.pbtxt").write_text(
        f'platform: "ensemble"{TENSORS}ensemble_scheduling {{ step [ {steps} ] }}'
    )


def traced_request(repository: Path) -> list[ReceivedSpan]:
    """The spans of one request to `search`."""
    body = {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32", "data": [1]}]}
    with otlp_receiver() as collector:
        flags = (
            "--trace-config=mode=opentelemetry",
            f"--trace-config=opentelemetry,url={collector.url}",
            "--trace-config=level=TIMESTAMPS",
            "--trace-config=rate=2",  # the first request is slower
        )
        with start_server(repository, *flags) as server:
            for _ in range(2):
                host = http.client.HTTPConnection(server.http)
                host.request("POST", "/v2/models/search/infer", json.dumps(body))
                host.getresponse().read()
                host.close()
            collector.wait_for(lambda collector: bool(collector.spans))
            return collector.spans


def rows(spans: list[ReceivedSpan], parent: str = "", depth: int = 0) -> Iterator[tuple[int, ReceivedSpan]]:
    """Each span after the one that it is below, with how deep it is."""
    below = [span for span in spans if span.parent == parent]
    for span in sorted(below, key=lambda span: span.start):
        yield depth, span
        yield from rows(spans, span.span_id, depth + 1)


def drawn(spans: list[ReceivedSpan]) -> str:
    """The spans as a picture."""
    began = min(span.start for span in spans)
    ended = max(span.end for span in spans)
    scale = (WIDTH - LEFT - 70) / (ended - began)
    height = TOP + ROW * len(spans) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for milliseconds in range(0, int((ended - began) / 1e6) + 1, 5):
        x = LEFT + milliseconds * 1e6 * scale
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 6}" stroke="#e4e4e4"/>')
        lines.append(f'<text x="{x:.1f}" y="14" text-anchor="middle" fill="#606060">{milliseconds} ms</text>')
    for index, (depth, span) in enumerate(rows(spans)):
        y = TOP + ROW * index
        x = LEFT + (span.start - began) * scale
        duration = span.end - span.start
        width = max(duration * scale, 1)
        lines.append(f'<text x="{8 + 14 * depth}" y="{y + 13}" fill="#202020">{escape(span.name)}</text>')
        colour = COLOURS.get(span.name, MODEL_COLOUR)
        lines.append(
            f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="14" rx="2" fill="{colour}"/>'
        )
        lines.append(
            f'<text x="{x + width + 5:.1f}" y="{y + 13}" fill="#606060">{duration / 1e6:.2f} ms</text>'
        )
    return "\n".join((*lines, "</svg>", ""))


def main() -> None:
    """Draw the picture."""
    with TemporaryDirectory() as directory:
        write_repository(Path(directory))
        spans = traced_request(Path(directory))
    PICTURE.write_text(drawn(spans))
    sys.stdout.write(f"{PICTURE}: {len(spans)} spans\n")


if __name__ == "__main__":
    main()
